package ledgertest

import (
	"strings"

	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// startBindWith is start-bind-with pod node cpu=1000, then lines as exchange reads them.
func (r *transcript) startBindWith(c *words, lines []*words) []string {
	p := c.placement(r.ledger.Table(), 1)
	return r.granted(r.ledger.StartBindWith(&p, r.readExchange(lines), at(r.now)))
}

// exchange is exchange, then lines: give-up a@1,b@1, and keep a@1,b@1 node,node cpu=1000 ttl=10s for slots that are
// made on the first of the nodes with capacity.
func (r *transcript) exchange(_ *words, lines []*words) []string {
	if rejection := r.ledger.Exchange(r.readExchange(lines), at(r.now)); rejection != nil {
		return []string{"refused: " + r.rejection(rejection)}
	}
	return []string{"done"}
}

func (r *transcript) readExchange(lines []*words) *ledger.Exchange {
	x := &ledger.Exchange{}
	for _, line := range lines {
		pods := strings.Split(line.word(1), ",")
		if line.word(0) == "give-up" {
			for _, pod := range pods {
				x.GiveUp = append(x.GiveUp, podRef(pod))
			}
			continue
		}
		choice := ledger.Choice{Nodes: strings.Split(line.word(2), ",")}
		for _, pod := range pods {
			p := line.placement(r.ledger.Table(), 1)
			p.Pod, p.Node = podRef(pod), ""
			slot := p.Slot(line.deadline(r))
			slot.Movable = true
			choice.Slots = append(choice.Slots, slot)
		}
		x.Keep = append(x.Keep, choice)
	}
	return x
}

// changeBind is change-bind pod node cpu=1000.
func (r *transcript) changeBind(c *words, _ []*words) []string {
	p := c.placement(r.ledger.Table(), 1)
	return r.granted(r.ledger.ChangeBind(&p, at(r.now)))
}

// bindFailedKeeping is bind-failed-keeping pod node ttl=10s.
func (r *transcript) bindFailedKeeping(c *words, _ []*words) []string {
	return yesNo(r.ledger.BindFailedKeeping(podRef(c.word(1)), c.word(2), c.deadline(r)), "kept", "no such bind")
}

// putOff is put-off a@1,b@1 ttl=10s.
func (r *transcript) putOff(c *words, _ []*words) []string {
	var pods []ledger.PodRef
	for pod := range strings.SplitSeq(c.word(1), ",") {
		pods = append(pods, podRef(pod))
	}
	r.ledger.PutOff(pods, c.deadline(r))
	return []string{"done"}
}

// nominate is nominate pod node cpu=1000 priority=1 ttl=10s.
func (r *transcript) nominate(c *words, _ []*words) []string {
	p := c.placement(r.ledger.Table(), 1)
	return yesNo(r.ledger.Nominate(&p, c.deadline(r)), "others make way", "nobody makes way")
}
