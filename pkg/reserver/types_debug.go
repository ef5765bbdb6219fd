package reserver

// DumpAnswer is the answer to /debug/ledger: the account of the server that is asked, also where another one decides.
type DumpAnswer struct {
	Server    string // its name in the election
	Undecided string `json:",omitempty"` // why it does not decide
	// Pods and Objects say which parts of the account are complete: pods and nodes, which every server
	// follows, and reservations and devices, which only the one that decides has.
	Pods, Objects bool
	// IgnoredResources are extended resources that the account does not count.
	IgnoredResources []string `json:",omitempty"`
	Account          WatchSnapshot
}

// DiffAnswer is the answer to /debug/diff: how the account of the server that is asked differs from what the API server
// lists.
type DiffAnswer struct {
	Server    string
	Undecided string `json:",omitempty"`
	// Compared are the kinds of objects that were compared, in lower case and plural.
	Compared    []string
	Differences []Difference
	// More is how many differences there are beyond these 1,000.
	More int `json:",omitzero"`
}

// Difference is one thing in which an account differs from the cluster.
type Difference struct {
	// Kind is what is wrong, such as missing_allocation.
	Kind string
	// Object is a kind in lower case and a name, such as "pod default/web-0".
	Object string
	UID    string `json:",omitempty"`
	Node   string `json:",omitempty"`
	// Ledger and Cluster say in words what each side has.
	Ledger, Cluster string
}
