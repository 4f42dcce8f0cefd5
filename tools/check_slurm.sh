#!/usr/bin/env bash
# check_slurm.sh PROGRAM: tests `qkscope submit` and `sweep --status` with a real slurmctld and slurmd on this machine: the
# demo's ten checkpoints in arrays of 8 tasks, about a third of the tasks killed, the controller restarted once. The result
# must be byte-identical to a run on one machine. Needs root and Debian's slurmctld, slurmd, slurm-client and munge; the
# daemons use their own ports, keys and folders, and are stopped at the end.
#
# TEXTS=N uses N texts of the demo (32), SEED=N sets the seed of the kills.
set -euo pipefail
shopt -s nullglob

readonly program=$(realpath "$1") texts=${TEXTS:-32} shards=8
readonly source_folder=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
readonly work=$(mktemp -d -t qkscope-slurm.XXXXXX)
readonly host=$(hostname -s)
export SLURM_CONF=$work/slurm.conf
RANDOM=${SEED:-7}

say() { printf '%s\n' "$*" >&2; }
fail() { say "error: $*"; exit 1; }

# ---- Slurm

daemon() { cat "$work/$1.pid" 2>/dev/null || true; }

stop_daemon() {  # stop_daemon NAME
  local pid
  pid=$(daemon "$1")
  [ -n "$pid" ] || return 0
  kill "$pid" 2>/dev/null || true
  for _ in $(seq 50); do kill -0 "$pid" 2>/dev/null || return 0; sleep 0.1; done
  kill -KILL "$pid" 2>/dev/null || true
}

clean_up() {
  local code=$?
  scancel --quiet --user=root 2>/dev/null || true
  for _ in $(seq 50); do [ -z "$(squeue --noheader 2>/dev/null)" ] && break; sleep 0.2; done
  for name in slurmctld slurmd munged; do stop_daemon "$name"; done
  if [ $code -eq 0 ]; then rm -rf "$work"; else say "logs are in $work"; fi
  exit $code
}

free_ports() {
  python3 -c 'import socket
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(one.getsockname()[1] for one in held))'
}

write_config() {
  local controller node
  read -r controller node < <(free_ports)
  cat >"$SLURM_CONF" <<CONF
ClusterName=qkscope
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$controller
SlurmdPort=$node
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket,cred_expire=5
CredType=cred/munge
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0,sched_min_interval=200000
KillWait=5
ReturnToService=2
MpiDefault=none
NodeName=$host NodeAddr=127.0.0.1 CPUs=$shards RealMemory=1000 State=UNKNOWN
PartitionName=main Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
}

start_slurm() {
  mkdir -p "$work"/{munge,state,spool}
  chmod 755 "$work" "$work/munge"
  (umask 077 && head -c 1024 /dev/urandom >"$work/munge/key")
  munged --key-file="$work/munge/key" --socket="$work/munge/socket" --pid-file="$work/munged.pid" \
    --log-file="$work/munged.log" --seed-file="$work/munge/seed" || fail "munged does not start: $(tail -n 2 "$work/munged.log")"
  write_config
  slurmctld -c || fail "slurmctld does not start"
  slurmd -N "$host" || fail "slurmd does not start"
  for _ in $(seq 100); do
    [ "$(sinfo --noheader --format=%t 2>/dev/null)" = idle ] && return
    sleep 0.2
  done
  fail "the node does not come up: $(tail -q -n 2 "$work/slurmctld.log" "$work/slurmd.log")"
}

restart_controller() {
  stop_daemon slurmctld
  sleep 2
  slurmctld || fail "slurmctld does not start again"
  say "the controller was restarted"
}

# ---- The sweep

sweep_options() {  # sweep_options OUT
  options=("$source_folder/configs/demo/sweep.yaml" --out "$work/$1" --set "dataset.max_samples=$texts")
}

# The last bits of statistics depend on the shards (floating-point sums), so two runs are sharded here too.
run_on_one_machine() {
  sweep_options alone
  for label in S1-40 S3-4720; do
    "$program" sweep "${options[@]}" --quiet --only $label --part merge --shards $shards
  done
  "$program" sweep "${options[@]}" --quiet --no-figures
}

submit() { "$program" submit sweep "${options[@]}" --no-figures --shards $shards --slurm cpus=1 --slurm retries=3 "$@"; }

# expect CODE TEXT COMMAND...: the command must exit with CODE and print one line that contains TEXT.
expect() {
  local code=0 message
  message=$("${@:3}" 2>&1 >/dev/null) || code=$?
  [ "$code" = "$1" ] && [[ $message == *"$2"* ]] && [ "$(wc -l <<<"$message")" = 1 ] ||
    fail "expected exit code $1 and one line with '$2', found $code and: $message"
}

# Prints the queue: task, job id, state, name. Retries until the controller answers.
in_queue() {
  local tasks
  until tasks=$(squeue --noheader --array --format='%i %A %T %j' 2>/dev/null); do sleep 0.3; done
  printf '%s' "$tasks"
}

begun_in_two_shards() {
  sweep_options begun
  "$program" sweep "${options[@]}" --quiet --only S1-40 --part capture --shard 0/2
  submit
}

try_bad_input() {
  expect 2 "Invalid partition name" submit --slurm partition=nowhere
  expect 2 "begun in 2 shards, not in 8" begun_in_two_shards
  stop_daemon slurmctld
  expect 1 "Unable to contact slurm controller" submit
  slurmctld || fail "slurmctld does not start again"
  [ -z "$(in_queue)" ] || fail "a refused submission left jobs behind"
}

# Compares one capture in four tasks, with a time limit of a minute that is not reached, with a local capture.
try_capture() {
  cat >"$work/capture.yaml" <<CONFIG
dataset: {path: $source_folder/share/demo/corpus.jsonl, id_column: id, max_samples: $texts}
model: {name: $source_folder/share/demo/checkpoints/S1-40, dtype: float32, device_map: cpu}
tokenizer: {max_length: 256}
capture: {sampler: {type: uniform, base_rate: 1.0}, min_bucket_size: 16}
output: {data_root: $work/captured}
CONFIG
  "$program" capture --config "$work/capture.yaml" --set "output.data_root=$work/captured-alone" --quiet
  "$program" submit capture "$work/capture.yaml" --shards 4 --slurm cpus=1 --slurm time=1 --quiet
  wait_for_queue
  diff --recursive --brief "$work/captured-alone" "$work/captured" || fail "the capture differs"
  say "a capture over four tasks is that of one machine, byte by byte"
}

# hit TASK JOB: cancels, signals or kills a running task, chosen at random.
hit() {
  local pid pids
  case $((RANDOM % 4)) in
    0) scancel "$1" ;;
    1) scancel --batch --signal=USR1 "$1" ;;  # the signal that Slurm sends before a time limit
    2 | 3)
      mapfile -t pids < <(scontrol listpids "$2" 2>/dev/null | awk 'NR > 1 && $1 > 1 { print $1 }')
      for pid in "${pids[@]}"; do  # the program, or sometimes its batch script
        [ "$(readlink "/proc/$pid/exe" 2>/dev/null)" = "$program" ] || [ $((RANDOM % 4)) = 0 ] || continue
        kill -KILL "$pid" 2>/dev/null || true
      done ;;
  esac
}

# Until the queue is empty: considers each running task once and hits three of ten.
kill_tasks() {
  local -A seen=()
  local hits=0 restarted=no queue task job state name
  while queue=$(in_queue) && [ -n "$queue" ]; do
    while read -r task job state name; do
      [ "$state" = RUNNING ] && [ -z "${seen[$task]:-}" ] && [[ $name != *.tables ]] || continue
      seen[$task]=yes
      [ $((RANDOM % 10)) -lt 3 ] || continue
      hit "$task" "$job" 2>/dev/null || true
      hits=$((hits + 1))
    done <<<"$queue"
    if [ $restarted = no ] && [ $hits -ge 10 ]; then restart_controller; restarted=yes; fi
    sleep 0.2
  done
  say "$hits of ${#seen[@]} tasks that were seen at work were ended"
  [ $hits -ge 10 ] && [ $restarted = yes ] || fail "too few tasks were seen to end some of them; take more TEXTS"
}

wait_for_queue() { while [ -n "$(in_queue)" ]; do sleep 0.5; done; }

main() {
  trap clean_up EXIT
  start_slurm
  say "Slurm $(sinfo --version | cut -d' ' -f2) is up"
  local begin=$SECONDS
  run_on_one_machine
  say "one machine: $((SECONDS - begin)) s"
  sweep_options cluster
  try_bad_input
  try_capture
  begin=$SECONDS
  submit --quiet
  expect 2 "it is submitted already" submit --quiet
  kill_tasks
  say "Slurm: $((SECONDS - begin)) s"
  "$program" sweep "${options[@]}" --status
  # Slurm does not requeue cancelled tasks; the remaining work is submitted once more.
  if ! diff_results >/dev/null; then
    say "submitting what is left"
    submit --quiet
    wait_for_queue
  fi
  diff_results || fail "the results differ"
  say "the results are those of one machine, byte by byte"
}

diff_results() {
  diff --recursive --brief --exclude=summary.json --exclude=timings.json --exclude=.locks --exclude=cluster \
    "$work/alone" "$work/cluster"
}

main
