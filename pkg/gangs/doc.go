// Package gangs knows which pods are useful only together, and how many of them are needed. It decides nothing, and
// writes nothing. pkg/gangs/kinds reads what a pod says of its gang, and pkg/kube/cluster keeps it. This package
// follows the objects that have the minimum, such as PodGroups, and puts both together.
//
//	gangs.go    Gangs: start, stop, what a gang needs
//	objects.go  the objects of one kind in one version
//
// The minimum is what the newest member says, and once some are bound what these agree on, or else that of the gang's
// object. A pod is in no gang where the minimum is at most 1, its kind's definition is not installed, or the object has
// no minimum. What is wrong, such as a missing object, is the gang's Problem: its pods are members all the same.
//
// Of an object only its minimum and its time of creation are kept. Where objects of a kind cannot be read, or their
// watch is silent for too long, only gangs of that kind wait. A lock per kind and version guards its objects. OnChanged
// is called with none held.
package gangs
