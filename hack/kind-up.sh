#!/usr/bin/env bash
# Makes a kind cluster with GlobalReserve in it: hack/kind-up.sh [NAME]. It takes kind, kubectl, docker, Go and make, and uses
# no context but that of the new cluster. `kind delete cluster --name NAME` ends it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

name=${1:-globalreserve}
for program in kind kubectl docker go make; do
  command -v "$program" >/dev/null || { echo "kind-up: there is no $program on the PATH" >&2; exit 1; }
done
kubectl() { command kubectl --context "kind-$name" "$@"; }

# The name by which the manifests know the image.
image=$(sed -n 's/^ *image: *//p' manifests/base/deployment.yaml)
make build
make image IMAGE="$image"
kind create cluster --name "$name" --wait 2m
kind load docker-image "$image" --name "$name"
kubectl apply -f manifests/base/namespace.yaml
bin/globalreserve certificate | kubectl apply -f -
kubectl apply -k manifests/single
kubectl -n globalreserve-system rollout status deployment/globalreserve --timeout 3m

cat <<END
The cluster kind-$name has GlobalReserve. Its own kube-scheduler does not ask it yet: scheduler-config/README.md tells how it does.
  kubectl --context kind-$name -n globalreserve-system get pods
  kind delete cluster --name $name
END
