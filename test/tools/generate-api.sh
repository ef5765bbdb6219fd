#!/usr/bin/env bash
# Writes what is generated from the API types: deep copies, the CustomResourceDefinitions, and the
# typed client. Run it with `make generate`, which builds the generators.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tools=$PWD/bin/tools
module=github.com/globalreserve/globalreserve
version=globalreserve/v1alpha1
crds=manifests/crd
generated=pkg/generated

"$tools/controller-gen" object paths=./pkg/apis/...
"$tools/controller-gen" crd paths=./pkg/apis/... "output:crd:dir=$crds"

# controller-gen knows one pattern for every resource.Quantity, and markers do not reach the values
# of a ResourceList. That pattern admits exponents such as 1e1.5 and 1e999999999, which Go cannot
# read or takes forever to: one such object would stop every informer. Ours admits what Go reads.
wide='pattern: ^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$'
narrow='pattern: ^[+-]?([0-9]{1,18}(\.[0-9]{0,9})?|\.[0-9]{1,9})([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$'
narrowed=
for crd in "$crds/$(sed -n 's/^const GroupName = "\(.*\)"/\1/p' "pkg/apis/$version/register.go")"_*.yaml; do
  content=$(<"$crd")
  if [[ $content == *"$wide"* ]]; then
    printf '%s\n' "${content//"$wide"/"$narrow"}" >"$crd"
    narrowed+=" $crd"
  fi
done
if [[ $narrowed != *_reservations.yaml* ]]; then
  echo "generate: Reservation has no quantity pattern to narrow: has controller-gen changed it?" >&2
  exit 1
fi

# Made beside the work tree and moved in at the end: a generator that fails leaves the old code, and
# what a removed type left behind goes, too.
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
"$tools/client-gen" --clientset-name versioned --input-base "$module/pkg/apis" --input "$version" \
  --output-dir "$fresh/clientset" --output-pkg "$module/$generated/clientset"
mkdir -p "$generated"
rm -rf "${generated:?}"/*
cp -r "$fresh"/. "$generated"
