# Draws doc/*.svg from the points of a run: see bench/report.  Variables:
# results, the folder of the points, and doc, where to.

set terminal svg size 860,400 font "sans-serif,13" background rgb "white"
set datafile separator tab
set key outside right center reverse Left autotitle columnhead
set grid lc rgb "#dddddd"
set border 3
set tics nomirror
set style data linespoints
set linetype 1 lc rgb "#0072b2" lw 2 pt 7 ps 0.6
set linetype 2 lc rgb "#d55e00" lw 2 pt 5 ps 0.6
set linetype 3 lc rgb "#009e73" lw 2 pt 9 ps 0.7
set linetype 4 lc rgb "#cc79a7" lw 2 pt 13 ps 0.8

set output doc . "/cost-by-seats.svg"
set title "What a call costs, by the seats of its license"
set xlabel "seats of the license"
set ylabel "microseconds, one client"
set logscale x
set format x "%'.0f"
set yrange [0:*]
plot for [column = 2:5] results . "/flat.dat" using 1:column

set output doc . "/throughput-by-clients.svg"
set title "Throughput, by the number of clients"
set xlabel "clients"
set ylabel "a second, on the disk"
set logscale x 2
set format x "%.0f"
plot for [column = 2:5] results . "/clients.dat" using 1:column
