/*
Package autoscaling shows cluster autoscalers what they cannot see: the capacity that reservations keep, the
reservations that wait for a node that does not exist yet, and the pods that wait for a limit and not for a node.
docs/autoscalers.md says what is written when, and what somebody else's annotations mean.

  - protector.go    the Protector: annotations that keep a node from being removed while something is kept there
  - provisioner.go  the Provisioner: a ProvisioningRequest for a reservation that fits no node
  - request.go      what such a request and its pod templates look like; pure
  - holder.go       the Holder: a reason for pods that a limit keeps waiting
  - writes.go       the options of all three, and the rate of their writes, and why these fail

Only the server that decides writes. It compares what there is with what there is to be, again and again, so it does not
matter where a server before this one stopped: nothing that this package remembers has to outlive the server.

The extender answers for a pod over a limit so that its scheduler does not call it Unschedulable. But a scheduler does
not ask about a pod that fits no node by its own count, and one with the ledger in its process has no other answer. The
Holder is for these pods. The scheduler writes what it finds whenever it tries the pod, and the pod is judged anew then.
*/
package autoscaling
