#!python

# Entry point of the commands `qkscope` and `sniff-qk`: executes the binary of the same name in the package folder.
# Does not import the package, because the import would take longer than many commands.
import importlib.util
import os
import sys

name = os.path.basename(sys.argv[0])
package = importlib.util.find_spec("qkscope")
if package is None:
    sys.exit(f"error: {name}: this Python ({sys.executable}) has no package qkscope; pip install qkscope")
program = os.path.join(os.path.dirname(package.origin), "bin", name)
os.execv(program, [program, *sys.argv[1:]])
