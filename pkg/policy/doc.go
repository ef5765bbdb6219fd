// Package policy is the policy file: what an administrator decides about reservations and about
// the order of nodes. It holds the types with their rules, the strict decoding of the file, the
// Store that the rest of the server reads the policy in force from, the Watcher that follows
// changes of the file, and the command `policy validate`.
//
// The package says what the policy is. What follows from it for a pod or a node is decided by the packages that read
// it: pkg/arbiter computes the scores, for example.
//
// # The file
//
//	apiVersion: config.globalreserve.io/v1alpha1
//	kind: GlobalReservePolicy
//	schedulers:                      # optional; schedulers not listed may reserve too
//	- name: batch-scheduler          # spec.schedulerName of its pods
//	  callers: ["system:serviceaccount:batch:scheduler"]  # may act for it, besides those whom a role lets
//	  limits: {cpu: 60%}             # the most each of its callers may use: quantities, or of all nodes
//	  maxReservationTTL: 1h          # at most reservations.maxTTL, which is also the default
//	  prioritize: {strategy: LeastAllocated}  # what it leaves out is as in prioritize below
//	namespaces:                      # optional; default is for those that are not named
//	  default:
//	    maxReserved: {cpu: 20%}      # what reservations keep beyond what pods use: quantities, or of all nodes
//	    maxSlots: 200                # slots of reservations, those in memory included
//	deletedPods:
//	  enabled: true                  # default: true
//	  defaultTTL: 60s                # default: the flag --reservation-ttl
//	  maxTTL: 1h                     # default: reservations.maxTTL
//	reservations:
//	  defaultTTL: 60s                # default: the flag --reservation-ttl
//	  maxTTL: 24h                    # default: 24h
//	prioritize:
//	  strategy: MostAllocated        # or LeastAllocated; default: MostAllocated
//	  resources:                     # default: cpu and memory, weight 1 each
//	  - name: cpu
//	    weight: 1                    # 1 to 100, default 1
//	  reservationMatch: 10           # 0 to 10, default 10
//	gangs:
//	  deadline: 60s                  # default: 60s; at most 24h
//	  kinds:                         # go before the defaults; one of a default's name is in its place
//	  - name: volcano
//	    disabled: true               # pods of this kind are no gangs
//	  - name: example
//	    pods:                        # the first that a pod has counts
//	    - name: .metadata.labels['example.com/gang']
//	      minimum: .metadata.annotations['example.com/gang-min']  # optional where there are objects
//	    object:                      # optional where pods have the minimum
//	      group: example.com
//	      versions: [v1]
//	      resource: gangs
//	      minimum: .spec.size
//	autoscaling:
//	  protectNodes: true             # default: true
//	  holdBackPods: true             # default: true
//	  provisioningRequests:
//	    className: best-effort-atomic-scale-up.autoscaling.x-k8s.io  # default: none are made
//	    after: 30s                   # default: 30s; at most 24h
//	    parameters: {ValidUntilSeconds: "600"}
//
// Decoding is strict: a field that is unknown, given twice or of the wrong type is an error, and so
// is a second document after "---". Durations are Go durations with a unit.
//
// # Reloading
//
// The file is usually mounted from a ConfigMap. The kubelet writes a new directory beside it and
// swaps the symlink ..data to it, so the file itself never changes: the Watcher watches the
// directory. A file that does not parse leaves the policy before in force. The kinds of gangs are those of the start: a
// server that finds others in a file it reloads goes on with the former, and says so.
//
// The markers are for docs/reference/policy.md, which is made of the types.
//
// +groupName=config.globalreserve.io
// +versionName=v1alpha1
package policy
