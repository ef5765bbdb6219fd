#!/usr/bin/env bash
# Runs `make generate` on a copy of the sources and fails where the copy then differs, so that the
# check itself never changes the work tree.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

copy=$(mktemp -d)
trap 'rm -rf "$copy" "$copy.list"' EXIT

# Tracked and new files alike, minus those that are deleted but not yet committed.
git ls-files -z --cached --others --exclude-standard |
  while IFS= read -r -d '' file; do
    [ ! -e "$file" ] || printf '%s\0' "$file"
  done >"$copy.list"
xargs -0 cp --parents -pt "$copy" <"$copy.list"
mkdir -p "$copy/bin"
# The tools are up to date already: use them, instead of building them once more.
ln -s "$PWD/bin/tools" "$copy/bin/tools"

echo "verify: make generate"
make --no-print-directory -C "$copy" generate >/dev/null

status=0
while IFS= read -r -d '' file; do
  cmp -s "$file" "$copy/$file" || {
    diff -u "$file" "$copy/$file" || true
    status=1
  }
done <"$copy.list"
(cd "$copy" && find . -path ./bin -prune -o -type f -print0) |
  while IFS= read -r -d '' file; do
    [ -e "$file" ] || {
      echo "verify: $file is generated but missing here"
      exit 1
    }
  done || status=1

if [ "$status" -ne 0 ]; then
  echo "verify: run 'make generate' and commit what it changes" >&2
fi
exit "$status"
