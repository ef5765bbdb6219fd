package rest

import (
	"cmp"
	"time"
)

// Bounds on what one request may ask for. They keep a mistaken client from
// taking the server's memory, and are far above what a cluster needs.
const (
	// MaxPods is the most pods of one /reserve, /unreserve or what-if request.
	MaxPods = 10_000
	// maxProposals is the most pods of a what-if request that leaves the choice of the nodes to the server.
	maxProposals = 1_000

	maxBody                = 32 << 20         // bytes
	maxRequestIDLength     = 200              // bytes
	maxSchedulerNameLength = 253              // bytes, as a Kubernetes name
	maxUIDLength           = 128              // bytes; the API server's have 36
	maxTTLSeconds          = 10 * 365 * 86400 // ten years: beyond that it is a mistake
	maxResourceNames       = 1_000            // per requests, limits or overhead
	maxResourceNameLength  = 2 * 253          // bytes
)

// Limits bound what the handlers take on. A zero field means its default.
type Limits struct {
	// MaxWatchers is how many /v1/watch streams are open at one time, half of them
	// of one caller; more are refused with 503. Default 256.
	MaxWatchers int
	// MinRevisionWait is how long a request waits for its MinRevision. Default 5 s.
	MinRevisionWait time.Duration
	// Heartbeat is the time between signs of life on a silent watch; default 15 s.
	Heartbeat time.Duration
	// WriteTimeout is how long a watcher may take to accept what is sent to it before its stream is cut; default 10 s.
	WriteTimeout time.Duration
}

func (l Limits) withDefaults() Limits {
	return Limits{
		MaxWatchers:     cmp.Or(l.MaxWatchers, 256),
		MinRevisionWait: cmp.Or(l.MinRevisionWait, 5*time.Second),
		Heartbeat:       cmp.Or(l.Heartbeat, 15*time.Second),
		WriteTimeout:    cmp.Or(l.WriteTimeout, 10*time.Second),
	}
}
