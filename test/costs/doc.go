// Package costs keeps the hot paths from becoming more expensive unnoticed, on machines that are busy with
// other things.
//
// No time that passes is measured. An operation is judged by two numbers:
//   - its allocations, which are the same everywhere, within half a percent;
//   - the processor time of the process per operation, in units of a fixed piece of work (unit.go) that is run in
//     turns with it in the same process. How fast the machine is, and who shares its caches, cancels out
//     for the most part; the margin is wide.
//
// baseline.json has the numbers to compare with. `make bench-baseline` writes it.
//
// Tests named TestCosts use this package. They have a build tag and a target of their own, `make costs`: how busy the
// machine is must not decide whether a change is good.
package costs
