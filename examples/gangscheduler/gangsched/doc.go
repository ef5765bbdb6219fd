/*
Package gangsched is a small gang scheduler that asks GlobalReserve before it binds. It is an
example to read and to copy from, and it is one of the racers in the demo and the end-to-end tests.

A gang is a set of pods of one namespace with the same annotation globalreserve.io/gang; globalreserve.io/gang-min
says how many it needs, and it starts once they are there. The server knows gangs by the same annotations. A gang runs
whole or not at all:

	collect   wait until all pods of the gang exist                        gang.go
	plan      find a node for each on this scheduler's own view             view.go, plan.go
	reserve   ask GlobalReserve for all of that capacity in one step            scheduler.go
	replan    refused: correct the view by what the answer says, plan anew  scheduler.go
	bind      bind every pod, give back what is left when one fails         bind.go

What belongs to GlobalReserve is in pkg/client, and in the few lines of scheduler.go and bind.go that
call it. A scheduler that has the rest already needs only those.

Without a GlobalReserve URL the scheduler binds on its own view alone. That view is always a little
old, so together with any other scheduler it overcommits nodes; the demo shows it.

The plan is simple on purpose: best fit on CPU, then memory; node selectors, affinity, taints and host
ports are respected, spreading and volumes are not.
*/
package gangsched
