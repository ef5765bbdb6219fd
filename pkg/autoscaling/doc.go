/*
Package autoscaling tells cluster autoscalers what they cannot see: the capacity that reservations keep, the
reservations that wait for a node that does not exist yet, and the pods that wait for a limit and not for a node.

  - protector.go    the Protector: annotations that keep a node from being removed while something is kept there
  - provisioner.go  the Provisioner: a ProvisioningRequest for a reservation that fits no node
  - request.go      what such a request and its pod templates look like; pure
  - holder.go       the Holder: a reason for pods that a limit keeps waiting
  - writes.go       what they know of their writes: their rate, and why they fail

Only the server that decides writes. They go by what there is to be and what there is, again and again, so it does not
matter where a server before this one stopped: nothing that this package remembers has to outlive it.

# A node that is kept

A node that slots of Reservation objects keep something on, which no pod uses, gets three annotations in one server-side
apply: the two that cluster-autoscaler and Karpenter go by, and one that says that the others are from here. An apply
without them takes off what nobody else has written. So the three are there together or not at all, and:

  - What somebody else had applied or written before with the value "true" is owned by both, and stays.
  - Another value, such as "false", is somebody's decision. It is left alone, also where it was "true" before.
  - A node that is gone is not made again: the apply names its UID.

# A request for nodes

A Pending reservation that no node has capacity for is requested once: the name of the request follows from the
reservation's UID, and the reservation's condition ProvisioningRequested says that it was made. Both belong to the
reservation, which the garbage collector goes by, and a request is deleted earlier where its reservation does not wait
any more.

# A pod that a limit keeps waiting

Autoscalers make nodes for pods that their scheduler says are Unschedulable. The extender answers for a pod over a limit
so that its scheduler does not say that. But a scheduler asks nobody about a pod that fits no node by its own count, and
one with the ledger in its process has no other word. To these pods' conditions the Holder gives the reason
PodReasonHeldBack, and what the limit is as the message, until nothing holds the pod back any more. The scheduler writes
what it finds whenever it tries the pod, and the pod is judged anew then.
*/
package autoscaling
