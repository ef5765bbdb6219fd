// Package kinds is the table of the kinds of gangs: how a pod says which gang it is a member of, and where the
// gang's minimum is written. The table is part of the policy file, so that an unknown scheduler needs no code.
// The package is pure: it reads only the pods and objects that it is given.
//
//   - kind.go      Kind, as the policy file has it, and its rules
//   - defaults.go  the kinds that are known without any file, and how a file's list goes with them
//   - path.go      the JSON paths
//   - table.go     Table: which gang a pod names, and what minimum an object says
//
// # Which gang a pod is a member of
//
// The kinds are looked through in order, those of the file first, and the ways of each kind in order; the first that
// names a gang counts, alone. So a pod is a member of one gang at most. The name is that of a gang in the pod's own
// namespace.
//
// What is wrong with what a pod says is part of its Mark and no error: the pod exists, and a request about it needs an
// answer.
//
// The markers are for docs/reference/policy.md, which is made of the types.
//
// +groupName=config.globalreserve.io
// +versionName=v1alpha1
package kinds
