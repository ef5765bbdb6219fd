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
# The tier of all tests of a nested module.
tier_of() {
  if has "$UNIT_MODULES" "$1"; then
    echo unit
  elif has "$GATE_MODULES" "$1"; then
    echo gate
  else
    has "$E2E_MODULES" "$1" && echo e2e
  fi
}

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
      ?*) fail "$file: nothing tests '//go:build $constraint' in a nested module" ;;
      *) tier=$(tier_of "${module#./}") || fail "$file: no tier has the module ${module#./}" ;;
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
  xargs grep -lE '^func (Test[A-Z][A-Za-z0-9_]*[(]t |Fuzz|Example)' | sort)
sort -u <<<"${list%$'\n'}"
[ -z "$failed" ]
