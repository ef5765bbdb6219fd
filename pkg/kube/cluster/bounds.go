package cluster

// The author of a pod chooses most of these texts, and the API server takes more than a megabyte of them. A thousand
// such pods would fill the server's memory. So a text is cut where it is longer than all that it could be equal to.
// What is kept of it then equals nothing.
const (
	maxText   = 253  // of names, as the API server bounds them
	maxCaller = 1024 // of users, who have names of all kinds
	maxTTL    = 64
	// maxChoice is how much is kept of a pod's labels, and of what it asks of nodes. A pod with more labels uses no
	// reservation by them. What a pod asks of nodes beyond that is left to its scheduler.
	maxChoice = 4 << 10
)

// fewLabels returns the labels that are kept, nil where their size is above maxChoice.
func fewLabels(labels map[string]string) map[string]string {
	if sizeOf(labels) > maxChoice {
		return nil
	}
	return labels
}

func sizeOf(labels map[string]string) (size int) {
	for key, value := range labels {
		size += len(key) + len(value)
	}
	return size
}

// size is how much memory constraints need, roughly.
func (c *Constraints) size() int {
	size := sizeOf(c.nodeSelector)
	for i := range c.tolerations {
		size += c.tolerations[i].Size()
	}
	if c.affinity != nil {
		size += c.affinity.Size()
	}
	return size
}
