// Package binaries holds no Go code: its go.mod pins the programs of the control plane that the
// end-to-end tests, the demo and the benchmarks run on, and build.sh builds them. To move to another
// release, change the versions and every staging replace in go.mod, run go mod tidy, and run
// make controlplane; the packages of test/controlplane tell whether the new release works.
package binaries
