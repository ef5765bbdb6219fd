// Package policy is the policy file (docs/policy.md): its types with their rules, its strict decoding, the Store that
// the rest of the server reads the policy in force from, the Watcher that follows the file, and the command `policy
// validate`. What follows from the policy for a pod or a node is decided by the packages that read it.
//
// The Watcher reads the file each second. A file that is not valid leaves the policy before in force. The kinds of
// gangs are those of the start: a server that finds others in the file goes on with the former, and says so.
//
// The markers are for docs/reference/policy.md, which is made of the types.
//
// +groupName=config.globalreserve.io
// +versionName=v1alpha1
package policy
