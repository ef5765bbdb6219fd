#!/usr/bin/env bash
# Writes into charts/globalreserve what it takes from manifests/, and its README. Run it with `make generate`, which builds
# helm-docs. A chart cannot read what is beside it, so it has copies.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

chart=charts/globalreserve
rm -rf "$chart/files"
for folder in base crd admission/base cert-manager monitoring scheduler/second-local static-pod; do
  mkdir -p "$chart/files/$folder"
  cp manifests/"$folder"/*.yaml "$chart/files/$folder"
  rm -f "$chart/files/$folder"/{kustomization,namespace}.yaml
done
cp manifests/monitoring/dashboard.json "$chart/files/monitoring"

bin/tools/helm-docs --chart-search-root "$chart" --sort-values-order file --log-level warning
if grep -n '| *|$' "$chart/README.md"; then
  echo "generate: the values above have no description: write one beside them, after '# --'" >&2
  exit 1
fi
