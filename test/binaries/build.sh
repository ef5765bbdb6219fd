#!/usr/bin/env bash
# Builds the control plane the end-to-end tests, the demo and the benchmarks run on: etcd,
# kube-apiserver, kube-controller-manager, kube-scheduler, kwok and kubectl, at the versions go.mod pins.
#
#   bash test/binaries/build.sh [--quiet] [OUTPUT_DIR [NAME...]]
#
# OUTPUT_DIR defaults to bin/controlplane in the repository, the names to all of them. --quiet says
# nothing when there is nothing to do. Where KUBEBUILDER_ASSETS names a directory, as setup-envtest
# prints it, etcd, kube-apiserver and kubectl of the pinned minor versions are linked from there.
#
# Needs Go, bash and coreutils. A run that finds everything built ends at once: a stamp beside each
# binary holds a hash of all that it depends on. Two runs may overlap: they take turns where flock
# exists, and every file appears under its final name in one rename in any case.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
quiet=
if [ "${1:-}" = --quiet ]; then
  quiet=yes
  shift
fi
out=${1:-$here/../../bin/controlplane}
names=("${@:2}")
mkdir -p "$out"
out=$(cd "$out" && pwd)
assets=${KUBEBUILDER_ASSETS:+$(realpath -m "$KUBEBUILDER_ASSETS")}
cd "$here"

command -v go >/dev/null || {
  echo "controlplane: no 'go' in PATH; install the Go release named in go.mod" >&2
  exit 1
}

# The caller's Go settings must not leak into what the stamp says was built, and the binaries run
# on this machine whatever the caller builds for.
unset GOOS GOARCH
export CGO_ENABLED=0 GOWORK=off GOFLAGS=-mod=readonly

[ ${#names[@]} -gt 0 ] || names=(etcd kube-apiserver kube-scheduler kwok kube-controller-manager kubectl)
declare -A packages=(
  [etcd]=go.etcd.io/etcd/server/v3
  [kube-apiserver]=k8s.io/kubernetes/cmd/kube-apiserver
  [kube-scheduler]=k8s.io/kubernetes/cmd/kube-scheduler
  [kube-controller-manager]=k8s.io/kubernetes/cmd/kube-controller-manager
  [kubectl]=k8s.io/kubernetes/cmd/kubectl
  [kwok]=sigs.k8s.io/kwok/cmd/kwok
)
for name in "${names[@]}"; do
  [ -n "${packages[$name]:-}" ] || {
    echo "controlplane: there is no '$name'; the names are: ${!packages[*]}" >&2
    exit 2
  }
done

fingerprint() {
  { cat go.mod go.sum build.sh; go version; go env GOOS GOARCH; } | sha256sum | cut -d' ' -f1
}

# The file of KUBEBUILDER_ASSETS that serves as a binary; fails where none does.
provided() {
  local name=$1 file=$assets/$1 module=k8s.io/kubernetes say=--version version
  [ -n "$assets" ] && [ -x "$file" ] || return 1
  case $name in
    etcd) module=go.etcd.io/etcd/server/v3 ;;
    kube-apiserver) ;;
    kubectl) say='version --client' ;;
    *) return 1 ;;
  esac
  version=$(go list -m -f '{{.Version}}' "$module")
  version=${version#v}
  # shellcheck disable=SC2086 # the words of $say are arguments
  [[ "$("$file" $say 2>/dev/null)" == *[v\ ]"${version%.*}".* ]] || return 1
  echo "$file"
}

# What the stamp of a binary says when it is as it is to be.
stamp() { echo "$want $(provided "$1" || true)"; }

up_to_date() { [ -x "$out/$1" ] && [ "$(cat "$out/.$1.stamp" 2>/dev/null)" = "$(stamp "$1")" ]; }

# The names of the binaries that are not as they are to be.
outdated() {
  local name
  for name in "${names[@]}"; do
    up_to_date "$name" || echo "$name"
  done
}

# kubectl and client-go compare versions with the server's. A binary built outside the Kubernetes
# tree carries no usable one, so it is stamped the way the Kubernetes release build does it.
version_flags() {
  local version=$1 package key flags=""
  local major=${version#v} minor
  major=${major%%.*}
  minor=${version#v*.}
  minor=${minor%%.*}
  local values=(
    "gitVersion=$version" "gitMajor=$major" "gitMinor=$minor"
    "gitTreeState=clean" "buildDate=$(date -u +%Y-%m-%dT%H:%M:%SZ)"
  )
  for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    for key in "${values[@]}"; do
      flags+=" -X $package.$key"
    done
  done
  echo "$flags"
}

build() {
  local name=$1 ldflags="-s -w" temporary="$out/.$1.$$" file
  if file=$(provided "$name"); then
    ln -s "$file" "$temporary"
    mv -fT "$temporary" "$out/$name"
    return
  fi
  case $name in
    kube*) ldflags+=$(version_flags "$kubernetes_version") ;;
  esac
  # -v names each package once it is compiled; all else it prints is about what went wrong, or is downloaded.
  if ! go build -v -trimpath -buildvcs=false -ldflags "$ldflags" -o "$temporary" "${packages[$name]}" 2>>"$log"; then
    grep -E '[[:space:]]' "$log" >&2 || true
    return 1
  fi
  mv -f "$temporary" "$out/$name"
}

# count_packages prints how many packages have to be compiled: those that are not in Go's cache. It also downloads modules, which
# Go tells of.
count_packages() {
  local name all=()
  for name in "${names[@]}"; do
    provided "$name" >/dev/null || all+=("${packages[$name]}")
  done
  [ ${#all[@]} -gt 0 ] || { echo 0; return; }
  go list -deps -trimpath -buildvcs=false -f '{{if .Stale}}stale{{end}}' "${all[@]}" | grep -c stale || true
}

# estimate prints how far it is and about how long the rest takes, if that goes on as it went: linking a binary takes about as
# long as compiling 40 packages.
estimate() {
  local link=40 compiled done all left
  compiled=$(grep -cvE '[[:space:]]' "$log" || true)
  done=$((compiled + $1 * link))
  all=$((wanted + ${#names[@]} * link))
  [ "$compiled" -ge 20 ] && [ "$wanted" -gt "$compiled" ] || return 0
  left=$((SECONDS * (all - done) / done))
  echo ", $compiled of $wanted packages, about $((left / 60)) min $((left % 60)) s left"
}

# The first binaries take minutes each; silence would look like a hang. The loop lets go of the
# lock, and takes its sleep with it when it is ended.
report_progress() {
  exec 9>&-
  # shellcheck disable=SC2046 # no job is no argument
  trap 'kill $(jobs -p) 2>/dev/null; wait; exit' TERM
  while :; do
    sleep 15 >/dev/null 2>&1 &
    wait $!
    echo "controlplane: still building $1 (${SECONDS}s so far$(estimate "$2"))"
  done
}

stop_progress() {
  [ -z "$progress" ] || { kill "$progress" && wait "$progress"; } 2>/dev/null || true
  progress=
}

progress=
want=$(fingerprint)
if [ -z "$(outdated)" ]; then
  [ -n "$quiet" ] || echo "controlplane: up to date in $out"
  exit 0
fi

log=$out/.log.$$
trap 'stop_progress; rm -f "$out"/.*."$$"' EXIT
if command -v flock >/dev/null; then
  exec 9>"$out/.lock"
  flock -n 9 || {
    echo "controlplane: another build is running, waiting for it"
    flock 9
  }
fi
mapfile -t names < <(outdated)
if [ ${#names[@]} -eq 0 ]; then
  echo "controlplane: up to date in $out"
  exit 0
fi

kubernetes_version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
echo "controlplane: building ${#names[@]} binaries of Kubernetes $kubernetes_version into $out"
echo "controlplane: a first build of all takes about 10 minutes on two cores, a later one 20 seconds"
: >"$log"
wanted=$(count_packages)
SECONDS=0
for i in "${!names[@]}"; do
  name=${names[$i]}
  echo "controlplane: [$((i + 1))/${#names[@]}] $name (${SECONDS}s so far$(estimate "$i"))"
  report_progress "$name" "$i" &
  progress=$!
  rm -f "$out/.$name.stamp"
  build "$name"
  stamp "$name" >"$out/.$name.stamp"
  stop_progress
done
echo "controlplane: done in ${SECONDS}s"
