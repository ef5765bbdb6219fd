package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// validate checks the whole policy. Every mistake has the path of its field in the file.
func (p *Policy) validate() field.ErrorList {
	errs := validateReservations(&p.Reservations, field.NewPath("reservations"))
	errs = append(errs, validateSchedulers(p.Schedulers, p.Reservations.MaxTTL.Duration, field.NewPath("schedulers"))...)
	errs = append(errs, validateNamespaces(p.Namespaces, field.NewPath("namespaces"))...)
	errs = append(errs, p.validateDeletedPods(field.NewPath("deletedPods"))...)
	errs = append(errs, validateGangs(&p.Gangs, field.NewPath("gangs"))...)
	errs = append(errs, validateAutoscaling(&p.Autoscaling, field.NewPath("autoscaling"))...)
	for i := range p.Schedulers {
		if s := &p.Schedulers[i]; s.Prioritize != nil {
			rules := p.withOwn(s)
			errs = append(errs, validatePrioritize(&rules, field.NewPath("schedulers").Index(i).Child("prioritize"))...)
		}
	}
	return append(errs, validatePrioritize(&p.Prioritize, field.NewPath("prioritize"))...)
}

func validateNamespaces(namespaces map[string]Namespace, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(namespaces)) {
		n, at := namespaces[name], path.Key(name)
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			errs = append(errs, field.Invalid(at, name, strings.Join(problems, "; ")))
		}
		errs = append(errs, validateAmounts(n.MaxReserved, at.Child("maxReserved"))...)
		if n.MaxSlots != nil && *n.MaxSlots < 0 {
			errs = append(errs, field.Invalid(at.Child("maxSlots"), *n.MaxSlots, "must not be negative"))
		}
	}
	return errs
}

func (p *Policy) validateDeletedPods(path *field.Path) field.ErrorList {
	d, longest := &p.DeletedPods, p.Reservations.MaxTTL.Duration
	errs := validateTTL(d.MaxTTL.Duration, longest, path.Child("maxTTL"))
	if d.MaxTTL.Duration > 0 && d.DefaultTTL.Duration > d.MaxTTL.Duration {
		text := fmt.Sprintf("must not be longer than deletedPods.maxTTL, which is %v", d.MaxTTL.Duration)
		return append(errs, field.Invalid(path.Child("defaultTTL"), d.DefaultTTL.Duration.String(), text))
	}
	return append(errs, validateTTL(d.DefaultTTL.Duration, longest, path.Child("defaultTTL"))...)
}

func validateGangs(g *Gangs, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if d := g.Deadline.Duration; d <= 0 || d > maxGangDeadline {
		errs = append(errs, field.Invalid(path.Child("deadline"), d.String(),
			fmt.Sprintf("must be longer than 0s and not longer than %v", maxGangDeadline)))
	}
	if redirect := path.Child("redirect"); g.Redirect == "" {
		errs = append(errs, field.Required(redirect, "say WhenRefused or Never, or leave it out"))
	} else {
		errs = append(errs, g.Redirect.Validate(redirect)...)
	}
	return append(errs, kinds.Validate(g.Kinds, path.Child("kinds"))...)
}

func validateReservations(r *Reservations, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if r.MaxTTL.Duration <= 0 {
		errs = append(errs, field.Invalid(path.Child("maxTTL"), r.MaxTTL.Duration.String(), "must be longer than 0s"))
	}
	return append(errs, validateTTL(r.DefaultTTL.Duration, r.MaxTTL.Duration, path.Child("defaultTTL"))...)
}

// validateTTL checks a duration that may be left out and must not be longer than limit.
func validateTTL(ttl, limit time.Duration, path *field.Path) field.ErrorList {
	switch {
	case ttl < 0:
		return field.ErrorList{field.Invalid(path, ttl.String(), "must be longer than 0s")}
	case limit > 0 && ttl > limit:
		return field.ErrorList{field.Invalid(path, ttl.String(),
			fmt.Sprintf("must not be longer than reservations.maxTTL, which is %v", limit))}
	default:
		return nil
	}
}

func validateSchedulers(schedulers []Scheduler, maxTTL time.Duration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, s := range schedulers {
		at := path.Index(i)
		switch {
		case s.Name == "":
			errs = append(errs, field.Required(at.Child("name"), "give the name its pods have in spec.schedulerName"))
		case seen.Has(s.Name):
			errs = append(errs, field.Duplicate(at.Child("name"), s.Name))
		case len(s.Name) > maxSchedulerName:
			errs = append(errs, field.TooLong(at.Child("name"), s.Name, maxSchedulerName))
		case strings.ContainsFunc(s.Name, func(r rune) bool { return !unicode.IsPrint(r) }):
			errs = append(errs, field.Invalid(at.Child("name"), s.Name, "must have printable characters only"))
		}
		seen.Insert(s.Name)
		for k, caller := range s.Callers {
			if caller == "" || caller == user.Anonymous {
				errs = append(errs, field.Invalid(at.Child("callers").Index(k), caller,
					"must be the name of a user, such as system:serviceaccount:<namespace>:<name>"))
			}
		}
		errs = append(errs, validateTTL(s.MaxReservationTTL.Duration, maxTTL, at.Child("maxReservationTTL"))...)
		errs = append(errs, validateAmounts(s.Limits, at.Child("limits"))...)
		if s.Limited() && len(s.Callers) == 0 {
			errs = append(errs, field.Required(at.Child("callers"),
				"limits are those of callers: list the users that act for the scheduler, "+
					"or "+ledger.Trusted+" for whoever comes by plain HTTP or is in the server's process"))
		}
	}
	return errs
}

func validatePrioritize(p *Prioritize, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if p.Strategy != MostAllocated && p.Strategy != LeastAllocated {
		errs = append(errs, field.NotSupported(path.Child("strategy"), p.Strategy, []Strategy{MostAllocated, LeastAllocated}))
	}
	if len(p.Resources) == 0 {
		errs = append(errs, field.Required(path.Child("resources"),
			"name at least one resource, or remove the field for cpu and memory"))
	}
	seen := sets.New[corev1.ResourceName]()
	for i, r := range p.Resources {
		at := path.Child("resources").Index(i)
		if seen.Has(r.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), r.Name))
		} else if problem := resourceNameProblem(string(r.Name)); problem != "" {
			errs = append(errs, field.Invalid(at.Child("name"), r.Name, problem))
		}
		seen.Insert(r.Name)
		if r.Weight < 1 || r.Weight > maxWeight {
			errs = append(errs, field.Invalid(at.Child("weight"), r.Weight, fmt.Sprintf("must be from 1 to %d", maxWeight)))
		}
	}
	if p.ReservationMatch < 0 || p.ReservationMatch > maxReservationMatch {
		errs = append(errs, field.Invalid(path.Child("reservationMatch"), p.ReservationMatch,
			fmt.Sprintf("must be from 0 to %d", maxReservationMatch)))
	}
	return errs
}

// resourceNameProblem says why a node cannot be judged by a resource of this name, or nothing. A
// name without a domain is one of the few that Kubernetes itself gives meaning to.
func resourceNameProblem(name string) string {
	if problems := validation.IsQualifiedName(name); len(problems) > 0 {
		return strings.Join(problems, "; ")
	}
	if strings.Contains(name, "/") || strings.HasPrefix(name, corev1.ResourceHugePagesPrefix) {
		return ""
	}
	switch corev1.ResourceName(name) {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return ""
	}
	return "must be cpu, memory, ephemeral-storage, hugepages-<size> or a name with a domain, such as example.com/gpu"
}
