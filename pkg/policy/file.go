package policy

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// file is the policy as it is written, before defaults: pointers tell "not given" from zero.
type file struct {
	APIVersion   string            `json:"apiVersion"`
	Kind         string            `json:"kind"`
	Schedulers   []fileScheduler   `json:"schedulers,omitempty"`
	Reservations *fileReservations `json:"reservations,omitempty"`
	Prioritize   *filePrioritize   `json:"prioritize,omitempty"`
}

type fileScheduler struct {
	Name string `json:"name"`
	// Limits is known only to be refused with a better answer than "unknown field".
	Limits            json.RawMessage `json:"limits,omitempty"`
	MaxReservationTTL *duration       `json:"maxReservationTTL,omitempty"`
}

type fileReservations struct {
	DefaultTTL *duration `json:"defaultTTL,omitempty"`
	MaxTTL     *duration `json:"maxTTL,omitempty"`
}

type filePrioritize struct {
	Strategy         *Strategy       `json:"strategy,omitempty"`
	Resources        *[]fileResource `json:"resources,omitempty"`
	ReservationMatch *int64          `json:"reservationMatch,omitempty"`
}

type fileResource struct {
	Name   corev1.ResourceName `json:"name"`
	Weight *int64              `json:"weight,omitempty"`
}

// duration is a duration as written. Decoding keeps whatever stands there, so that the error
// about it can name its field.
type duration struct {
	raw string // JSON
}

func (d *duration) UnmarshalJSON(raw []byte) error {
	d.raw = string(raw)
	return nil
}

func (d *duration) MarshalJSON() ([]byte, error) { return []byte(d.raw), nil }

// parse returns the duration; "not given" is 0.
func (d *duration) parse(path *field.Path) (time.Duration, *field.Error) {
	if d == nil {
		return 0, nil
	}
	const detail = `must be a duration with a unit, such as "90s", "10m" or "1h30m"`
	var text string
	if err := json.Unmarshal([]byte(d.raw), &text); err != nil {
		return 0, field.Invalid(path, json.RawMessage(d.raw), detail)
	}
	ttl, err := time.ParseDuration(text)
	if err != nil {
		return 0, field.Invalid(path, text, detail)
	}
	if ttl <= 0 {
		return 0, field.Invalid(path, text, "must be longer than 0s")
	}
	return ttl, nil
}

// policy fills in the defaults. Errors are of form only: Validate says whether the values make sense.
func (f *file) policy() (*Policy, field.ErrorList) {
	p := Default()
	var errs field.ErrorList
	ttl := func(into *time.Duration, d *duration, path *field.Path) {
		parsed, err := d.parse(path)
		if err != nil {
			errs = append(errs, err)
		} else if parsed != 0 {
			*into = parsed
		}
	}
	for i, s := range f.Schedulers {
		path := field.NewPath("schedulers").Index(i)
		if s.Limits != nil {
			errs = append(errs, field.Forbidden(path.Child("limits"), "limits per scheduler are not supported yet: remove the field"))
		}
		scheduler := Scheduler{Name: s.Name}
		ttl(&scheduler.MaxReservationTTL, s.MaxReservationTTL, path.Child("maxReservationTTL"))
		p.Schedulers = append(p.Schedulers, scheduler)
	}
	if r := f.Reservations; r != nil {
		path := field.NewPath("reservations")
		ttl(&p.Reservations.DefaultTTL, r.DefaultTTL, path.Child("defaultTTL"))
		ttl(&p.Reservations.MaxTTL, r.MaxTTL, path.Child("maxTTL"))
	}
	if f.Prioritize != nil {
		f.Prioritize.apply(&p.Prioritize)
	}
	return p, errs
}

func (f *filePrioritize) apply(p *Prioritize) {
	if f.Strategy != nil {
		p.Strategy = *f.Strategy
	}
	if f.Resources != nil {
		p.Resources = nil
		for _, r := range *f.Resources {
			weight := int64(1)
			if r.Weight != nil {
				weight = *r.Weight
			}
			p.Resources = append(p.Resources, ResourceWeight{Name: r.Name, Weight: weight})
		}
	}
	if f.ReservationMatch != nil {
		p.ReservationMatch = *f.ReservationMatch
	}
}

// fileOf writes a policy out again, with all defaults.
func fileOf(p *Policy) *file {
	f := &file{
		APIVersion:   APIVersion,
		Kind:         Kind,
		Reservations: &fileReservations{DefaultTTL: written(p.Reservations.DefaultTTL), MaxTTL: written(p.Reservations.MaxTTL)},
		Prioritize: &filePrioritize{
			Strategy:         &p.Prioritize.Strategy,
			Resources:        &[]fileResource{},
			ReservationMatch: &p.Prioritize.ReservationMatch,
		},
	}
	for _, s := range p.Schedulers {
		f.Schedulers = append(f.Schedulers, fileScheduler{Name: s.Name, MaxReservationTTL: written(s.MaxReservationTTL)})
	}
	for _, r := range p.Prioritize.Resources {
		*f.Prioritize.Resources = append(*f.Prioritize.Resources, fileResource{Name: r.Name, Weight: &r.Weight})
	}
	return f
}

// written is the opposite of duration.parse.
func written(ttl time.Duration) *duration {
	if ttl == 0 {
		return nil
	}
	return &duration{raw: `"` + ttl.String() + `"`}
}
