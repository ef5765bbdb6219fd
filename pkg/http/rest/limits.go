package rest

import "time"

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

	// maxWatchers is how many /v1/watch streams are open at one time, half of them of one caller; more are refused with
	// 503.
	maxWatchers = 256
	// maxRevisionWait is how long a request waits for its MinRevision.
	maxRevisionWait = 5 * time.Second
	// heartbeatEvery is the time between signs of life on a silent watch.
	heartbeatEvery = 15 * time.Second
	// maxWatchWrite is how long a watcher may take to accept what is sent to it before its stream is cut.
	maxWatchWrite = 10 * time.Second
)
