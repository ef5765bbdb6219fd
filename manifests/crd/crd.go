// Package crd has the definitions of our kinds, for programs that compare them with those of a cluster. The files are
// generated from pkg/apis; nothing here is changed by hand.
package crd

import "embed"

// Files are the definitions, a YAML file for each kind.
//
//go:embed globalreserve.io_*.yaml
var Files embed.FS
