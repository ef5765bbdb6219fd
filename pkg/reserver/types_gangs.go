package reserver

import "time"

// GangsAnswer is the answer to /v1/gangs.
type GangsAnswer struct {
	Revision uint64
	Gangs    []Gang
	// Continue is to be sent as ?continue= for the next page; empty at the end.
	Continue string `json:",omitempty"`
}

// Gang is pods that are useful only together, and how far they are.
type Gang struct {
	Namespace, Name string
	// Kind is that of the policy: "volcano".
	Kind      string
	Scheduler string `json:",omitempty"`
	// Minimum is how many of its pods have to be bound; 0 where that is not known, which Why explains.
	Minimum int
	// Pending are the pods without a node; for Kept of them capacity is kept. Bound includes those that are being bound.
	// Finished have succeeded.
	Pending, Kept, Bound, Finished int
	// State is Incomplete, Waiting, Starting, Short or Whole.
	State string
	// WaitingSince is when one of its pods was refused first, since when none was granted.
	WaitingSince time.Time `json:",omitzero"`
	// KeptUntil is when what is kept ends. It is put off while pods of the gang are bound.
	KeptUntil time.Time `json:",omitzero"`
	// HalfSince is since when some of its pods are bound, and fewer than Minimum.
	HalfSince time.Time `json:",omitzero"`
	// Why says why it is not whole, as far as that is known.
	Why string `json:",omitempty"`
}
