# Runs in a machine, as root; what is run for the session runs as the user 61000, which cannot change this file.
#
#   guest.sh run ID SECONDS BYTES PROCESSES FOLDER ARGUMENT...     runs a command, prints how it ended and its output
#   guest.sh start ID PROCESSES FOLDER ARGUMENT...                 starts one, whose streams are files
#   guest.sh stop                                                  kills every process of the user
do=$1
at=/opt/grpo/$2
as_user="setpriv --reuid 61000 --regid 61000 --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all"

begin() { # PROCESSES FOLDER ARGUMENT...
  processes=$1
  shift
  cd "$1" 2>/dev/null || { echo "no folder $1" >"$at/problem"; exit; }
  shift
  # What stands after the variables of `env -i` is the program.
  (for word; do case $word in env | -i | *=*) ;; *) echo "$word"; break ;; esac; done) >"$at/name"
  if ! PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin command -v -- "$(cat "$at/name")" >/dev/null; then
    echo "no program $(cat "$at/name")" >"$at/problem"
    exit
  fi
  exec setsid $as_user prlimit --nproc="$processes" -- "$@"
}

case $do in
run)
  seconds=$3 bytes=$4
  shift 4
  mkdir -p "$at" && chmod 700 "$at"
  [ -f "$at/in" ] || : >"$at/in"
  (begin "$@") <"$at/in" >"$at/out" 2>"$at/err" &
  child=$!
  setsid sh -c 'sleep "$1" && : >"$2/late" && kill -s KILL -- "-$3"' sh "$seconds" "$at" "$child" >/dev/null 2>&1 &
  watch=$!
  wait "$child"
  code=$?
  kill -s KILL -- "-$watch" 2>/dev/null
  echo "$code $([ -f "$at/late" ] && echo 1 || echo 0) $(stat -c %s "$at/out") $(stat -c %s "$at/err")"
  cat "$at/problem" 2>/dev/null || echo
  truncate -s "<$bytes" "$at/out" "$at/err"
  if [ "$(($(stat -c %s "$at/out") + $(stat -c %s "$at/err")))" -le 100000 ]; then
    base64 -w 0 "$at/out"
    echo
    base64 -w 0 "$at/err"
    rm -rf "$at"
  fi
  ;;
start)
  shift 2
  mkdir -p "$at" && chmod 700 "$at"
  mkfifo "$at/in"
  # Keeps the input open between two writes; its end is the end of the input.
  setsid sh -c 'exec 3<>"$1/in"; echo $$ >"$1/opened" && mv "$1/opened" "$1/holder"; exec sleep 2147483647' sh "$at" \
    >/dev/null 2>&1 &
  while [ ! -f "$at/holder" ]; do sleep 0.01; done
  (
    (begin "$@") <"$at/in" >"$at/out" 2>"$at/err" &
    echo $! >"$at/pid"
    wait $!
    echo $? >"$at/ended" && mv "$at/ended" "$at/code"
  ) >/dev/null 2>&1 &
  while [ ! -f "$at/pid" ]; do sleep 0.01; done
  ;;
stop) $as_user sh -c 'kill -9 -1' 2>/dev/null ;;
esac
