// Package limits passes to the ledger what each namespace may have: its ResourceQuotas limit what
// its pods and reservations use together, and the policy what its reservations keep. It also passes what each
// caller may use that the policy lists for a scheduler with limits.
//
//   - A quota on requests.cpu, requests.memory, requests.ephemeral-storage, an extended resource,
//     hugepages or pods counts, by any of its names (cpu, requests.cpu; pods, count/pods). Of several
//     the smallest does. What is in spec.hard counts, so that a change holds at once.
//   - A quota with scopes is about some pods only, and a reservation is for pods to come. The API
//     server keeps it; here only the scope NotBestEffort counts, for cpu and memory: pods that request
//     any of these are just those in that scope. An Event on the quota reports that another scope does not count.
//   - Percentages in the policy are of what all nodes offer, and follow it within a second.
//
// A limit below what is used ends nothing; nothing more is granted. The first decision waits
// until all quotas are known, and none is made while their watch is silent for too long (informer.Pulse).
//
// What may be touched: which quotas count, and how, is decided in quota.go alone.
package limits
