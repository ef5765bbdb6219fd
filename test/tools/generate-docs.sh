#!/usr/bin/env bash
# Writes the pages of docs/reference that are made of the code. Run it with `make generate`, which builds crd-ref-docs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# types SOURCE writes what there is to say about the types of a package.
types() {
  bin/tools/crd-ref-docs --config test/crdref/config.yaml --templates-dir test/crdref/templates --renderer markdown \
    --source-path "$1" --output-path "$work/types.md" --log-level ERROR >"$work/log" || { cat "$work/log" >&2; exit 1; }
  cat "$work/types.md"
}

# page NAME TITLE INTRODUCTION writes a page with what it reads.
page() {
  { printf '<!-- Written by `make generate`: do not change it by hand. -->\n\n# %s\n\n%s\n\n' "$2" "$3"; cat; } \
    | sed 's/[ \t]*$//' | cat -s >"docs/reference/$1"
}

# Of what the values of a field mean its own text tells.
types pkg/apis | sed '/^| value | is |$/,/^$/d' >"$work/objects"
page objects.md 'Objects' 'The kinds of `manifests/crd`. `kubectl explain rsv.spec` says the same of the cluster that you have. See [reservations](../reservations.md) and [devices](../devices.md).' <"$work/objects"
# crd-ref-docs makes no links from one package to another.
types pkg/policy | sed 's/| Kind array |/| [Kind](#kind) array |/' >"$work/policy"
types pkg/gangs/kinds | sed '/^`apiVersion/d' >>"$work/policy"
page policy.md 'The policy file' '[What it is for, an example, how it is changed, and what a kind of gangs is](../policy.md).' <"$work/policy"
go run ./test/reference docs/reference
