#!/usr/bin/env bash
# Prints the functions that no program and no test of the repository reaches, and fails if there are
# any. What only a nested module's program uses is looked for there: deadcode sees one module at a time.
# Usage: deadcode.sh DEADCODE TAGS NESTED_MODULE...
set -euo pipefail

deadcode=$(realpath "$1")
tags=$2
shift 2
ours='github.com/globalreserve/globalreserve'
format='{{range .Funcs}}{{$.Path}} {{.Name}} {{.Position}}{{println}}{{end}}'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$deadcode" -tags "$tags" -test -f "$format" ./... >"$work/found"
awk 'NF' "$work/found" | sort -u >"$work/dead"
for module in "$@"; do
  [ -s "$work/dead" ] || break
  (
    cd "$module"
    go list -deps . | grep -E "^$ours(/|\$)" | sort -u >"$work/linked"
    "$deadcode" -filter "^$ours(/|\$)" -f "$format" . | awk 'NF {print $1, $2}' | sort -u >"$work/unused"
  )
  # Alive: in a package that is linked into the program, and not among what it does not reach.
  awk -v linked="$work/linked" -v unused="$work/unused" '
    BEGIN {
      while ((getline line <linked) > 0) isLinked[line] = 1
      while ((getline line <unused) > 0) isUnused[line] = 1
    }
    !($1 in isLinked) || (($1 " " $2) in isUnused)' "$work/dead" >"$work/still"
  mv "$work/still" "$work/dead"
done
if [ -s "$work/dead" ]; then
  awk '{print $3 ": nothing reaches " $2}' "$work/dead"
  exit 1
fi
