/*
Package gangs knows the gangs of the cluster: which pods are useful only together, and how many of them are needed. It
decides nothing, and writes nothing. What a pod says of its gang is read by pkg/gangs/kinds and kept
with the pod by pkg/cluster; this package follows the objects that have the minimum, such as PodGroups, and puts both
together.

  - gangs.go    Gangs: start, stop, what a gang needs
  - objects.go  the objects of one kind in one version

# What a gang needs

	the pod names no gang, or one of a kind whose objects' definition is not installed  no gang
	the pod says the minimum                                                            that of the newest member, and once
	                                                                                    some are bound what these agree on
	the pod does not                                                                    that of the gang's object
	the minimum is at most 1, or the object has none                                    no gang

What is wrong, such as an object that does not exist, is the gang's Problem, in words for the people who made the pods.
A pod of a gang with a problem is a member of a gang all the same: nobody knows how many it needs.

# Objects

A kind's definition comes and goes at any time, and nearly all clusters have few of them. Of an object only its
minimum and its time of creation are kept, from the moment it arrives. Where the objects of a kind cannot be read, or
their watch is silent for too long, only gangs of that kind have a problem and wait. All other pods are decided on.

# Locks

A lock per kind and version guards its objects. Nobody is told of changes with one held.
*/
package gangs
