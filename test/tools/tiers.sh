#!/usr/bin/env bash
# Prints a line for each package with tests and tier that some of them are in, and fails where tests are in none.
# `make tiers` calls it with the packages of the tiers, as the targets use them, in its environment.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

failed=
list=
fail() {
  echo "tiers: $*" >&2
  failed=yes
}
has() { [[ " $1 " == *" $2 "* ]]; }

while IFS= read -r file; do
  package=./$(dirname "$file")
  module=$package
  while [ ! -e "$module/go.mod" ]; do module=$(dirname "$module"); done
  constraint=$(sed -n 's,^//go:build ,,p;/^package/q' "$file")
  tier=
  for tag in ${TAGS//,/ }; do
    [[ ! "$constraint" =~ (^|[^a-z])$tag([^a-z]|$) ]] || tier="$tier $tag"
  done
  if [ "$module" != . ]; then
    case $constraint in
      schedulerperf) tier=bench-scheduler ;;
      *) has "$MODULES" "${module#./}" && tier=nested || fail "$file: no tier has the module ${module#./}" ;;
    esac
  elif [ -z "$tier" ]; then
    [[ "$constraint" =~ ^(unix)?$ ]] || fail "$file: no tier has '//go:build $constraint'; the tags are $TAGS"
    tier=unit
    if [[ "$package" == ./test/* ]]; then
      tier=gate
      has "$GATE" "$package" || fail "$file: make system does not run $package"
    fi
  fi
  [ "$(wc -w <<<"$tier")" -le 1 ] || fail "$file: has tests in several tiers:$tier"
  list+="${tier# } $package"$'\n'
done < <(git ls-files --cached --others --exclude-standard '*_test.go' | while IFS= read -r f; do [ ! -e "$f" ] || echo "$f"; done |
  xargs grep -lE '^func (Test[A-Z]|Fuzz|Example)' | sort)
sort -u <<<"${list%$'\n'}"
[ -z "$failed" ]
