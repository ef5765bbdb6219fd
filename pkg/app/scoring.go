package app

import (
	"github.com/globalreserve/globalreserve/pkg/extender"
	"github.com/globalreserve/globalreserve/pkg/policy"
)

// prioritizePolicy hands the policy in force to the extender in its own words.
type prioritizePolicy struct{ store *policy.Store }

// Scoring implements extender.Policy.
func (p prioritizePolicy) Scoring() extender.Scoring {
	current := &p.store.Current().Prioritize
	scoring := extender.Scoring{
		LeastAllocated:   current.Strategy == policy.LeastAllocated,
		ReservationMatch: current.ReservationMatch,
		Resources:        make([]extender.ResourceWeight, 0, len(current.Resources)),
	}
	for _, r := range current.Resources {
		scoring.Resources = append(scoring.Resources, extender.ResourceWeight{Name: r.Name, Weight: r.Weight})
	}
	return scoring
}
