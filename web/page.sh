#!/usr/bin/env bash
# Builds and tests the live page: `bash web/page.sh tools|build|test`. What cannot be had here (npm, a node that is new enough, a
# network, a browser) is said in one line, and is no failure of `tools` and `test`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

dist=../pkg/http/ui/dist

without() { echo "web: LEFT OUT: $*" >&2; }

oldest=20.19 # the node that package.json asks for

# packages installs exactly what package-lock.json says, if it is not there. The file names no registry, whatever that is
# here, and so `npm ci` does not take it for complete; what is installed is checked against its hashes all the same.
packages() {
  if ! command -v npm >/dev/null || ! command -v node >/dev/null; then
    without "there is no npm, so the page is neither built nor tested; it takes node $oldest or later"
    return 1
  fi
  local has
  has=$(node --version)
  if [ "$(printf '%s\n' "${has#v}" $oldest | sort -V | head -n1)" != $oldest ]; then
    without "node is $has, so the page is neither built nor tested; it takes node $oldest or later"
    return 1
  fi
  [ node_modules/.complete -nt package-lock.json ] && return 0
  local lock
  lock=$(<package-lock.json)
  rm -rf node_modules
  if npm install --no-save --ignore-scripts --no-fund --no-audit --loglevel=error; then
    if [ "$lock" != "$(<package-lock.json)" ]; then
      echo "web: package-lock.json is not what package.json says" >&2
      exit 1
    fi
    touch node_modules/.complete
    return 0
  fi
  if npm view preact version >/dev/null 2>&1; then
    echo "web: npm's packages cannot be installed as package-lock.json says" >&2
    exit 1
  fi
  without "npm's packages cannot be had here, so the page is neither built nor tested"
  return 1
}

browser() {
  for name in "${BROWSER:-}" chromium chromium-browser google-chrome; do
    [ -n "$name" ] && command -v "$name" >/dev/null && return 0
  done
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    for try in install update; do
      if [ $try = update ]; then apt-get update >/dev/null 2>&1 || true; fi
      if apt-get install -y --no-install-recommends chromium fonts-dejavu-core >/dev/null 2>&1; then return 0; fi
    done
  fi
  without "there is no chromium and none can be installed, so no browser looks at the page"
}

build() { npx --no-install vite build --logLevel warn --outDir "$1" --emptyOutDir; }

# types makes the types of the server's answers from its own description, and checks the sources by them.
types() {
  npx --no-install openapi-typescript ../pkg/http/rest/openapi.yaml -o src/openapi.d.ts >/dev/null
  npx --no-install tsc
}

check() {
  made=$(mktemp -d)
  trap 'rm -rf "$made"' EXIT
  types
  npx --no-install vitest run
  build "$made/dist"
  diff -rq "$made/dist" $dist || { echo "web: what is committed is not what the sources say: run make ui, and commit pkg/http/ui/dist" >&2; exit 1; }
}

case ${1:-} in
tools)
  packages && browser || true
  ;;
build)
  packages || exit 1
  types
  build $dist
  ;;
test)
  packages || exit 0
  check
  ;;
*)
  echo "usage: $0 tools|build|test" >&2
  exit 2
  ;;
esac
