// Package release has goreleaser's own configuration types read .goreleaser.yaml: a key that it does not know is an
// error there. What the file says is held against the Makefile and .krew.yaml in hack/release_test.go.
package release
