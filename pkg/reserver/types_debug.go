package reserver

// DumpAnswer is the answer to /debug/ledger: the account of the server that is asked, also where another one decides.
type DumpAnswer struct {
	Server    string // its name in the election
	Undecided string `json:",omitempty"` // why it does not decide
	// Pods and Objects say what the account is complete in: pods and nodes, which every server
	// follows, and reservations and devices, which only the one that decides has.
	Pods, Objects bool
	// IgnoredResources are extended resources that the account does not count.
	IgnoredResources []string `json:",omitempty"`
	Account          WatchSnapshot
}
