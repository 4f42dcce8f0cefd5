# {name}. `gnuplot {name}.gp` in this folder draws it again.
formats = '{formats}'
data = '{name}.csv'
width = {width:.3f}  # inches
height = {height:.3f}

if (!exists('format')) {{  # the file loads itself once per format
  do for [format in formats] {{ load '{name}.gp' }}
  exit
}}
reset
if (format eq 'svg') {{
  set terminal svg size 72*width, 72*height fixed enhanced font '{font},{size}' background 'white'
}}
if (format eq 'png') {{
  set terminal pngcairo size {dpi}*width, {dpi}*height enhanced font '{font},{size}' \
    fontscale {dpi}/96.0 linewidth {dpi}/72.0 pointscale {dpi}/72.0 background 'white'
}}
if (format eq 'pdf') {{
  set terminal pdfcairo size width, height enhanced font '{font},{size}' fontscale 0.75 linewidth 2 \
    pointscale 1 background 'white'
}}
set output '{name}.'.format
set encoding utf8
set datafile separator ','
set datafile columnheaders
set border 3 lw 0.7 lc rgb '{ink}'
set tics nomirror out scale 0.5
set grid y back lw 0.4 lt 1 lc rgb '{hair}'
set key top left Left reverse samplen 1.6 spacing 1.0 font ',{small}' noautotitle
set bars small
set pointintervalbox 0
set style fill solid noborder
mark = format eq 'svg' ? 1.35 : 1  # SVG draws points smaller

{script}
set output
