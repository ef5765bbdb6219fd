package kinds

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Bounds of the table. Every pod is matched against all of it.
const (
	maxKinds    = 32
	maxWays     = 8 // of one kind
	maxVersions = 8
)

// Kind is one kind of gangs. An entry of the policy file replaces the default of the same name, whole.
type Kind struct {
	// Name is what people call it: "volcano".
	Name string `json:"name"`
	// Disabled has pods of this kind be no gangs.
	Disabled bool `json:"disabled,omitempty"`
	// Pods are the ways in which a pod names its gang; the first that the pod has counts.
	Pods []Way `json:"pods,omitempty"`
	// Object says which objects have the minimum of gangs whose pods do not say it; nil where there are none.
	Object *Object `json:"object,omitempty"`
	// Redirect says whether Bindings of the pods are redirected; "" means as the policy's gangs.redirect has it.
	Redirect Redirect `json:"redirect,omitempty"`
}

// Redirect says whether a Binding of a pod to a node without capacity is carried out on the node where capacity is kept
// for this pod alone, and whether the server binds pods of a gang there that their scheduler does not bind.
type Redirect string

// The values of Redirect.
const (
	// RedirectWhenRefused: it is, where the server can judge that node as a scheduler would.
	RedirectWhenRefused Redirect = "WhenRefused"
	// RedirectNever: it is refused, and the server binds none.
	RedirectNever Redirect = "Never"
)

// Validate checks the value.
func (r Redirect) Validate(at *field.Path) field.ErrorList {
	if r == "" || r == RedirectWhenRefused || r == RedirectNever {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, r, []Redirect{RedirectWhenRefused, RedirectNever})}
}

// Way is one way in which a pod names its gang. Both are paths on the pod: .metadata.annotations['key'],
// .metadata.labels['key'] or .spec.schedulingGroup.podGroupName.
type Way struct {
	// Name is where the gang's name is.
	Name string `json:"name"`
	// Minimum is where the pod itself says how many members the gang needs. Where it does, no object is looked for.
	Minimum string `json:"minimum,omitempty"`
	// Task is where the pod says which of the tasks it is one of that the object has minimums for.
	Task string `json:"task,omitempty"`
}

// Object is the kind of the objects that have the minimum. An object has the name of its gang.
type Object struct {
	// Group is the API group, such as scheduling.volcano.sh.
	Group string `json:"group"`
	// Versions are those that can be read, the best first.
	Versions []string `json:"versions"`
	// Resource is the plural name: "podgroups".
	Resource string `json:"resource"`
	// Minimum is a JSON path on the object, as kubectl takes them. An object without it has no minimum: its pods are
	// not useful only together.
	Minimum string `json:"minimum"`
	// Tasks is a JSON path on the object to a map of minimums by task: so many of the members that the gang needs have to
	// be of each. They count only where they come to no more than the minimum, as Volcano has it.
	Tasks string `json:"tasks,omitempty"`
}

// GroupResource is what the objects are called.
func (o *Object) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: o.Group, Resource: o.Resource}
}

// Validate checks a list of kinds. Every mistake has the path of its field.
func Validate(list []Kind, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(list) > maxKinds {
		return append(errs, field.TooMany(path, len(list), maxKinds))
	}
	seen := sets.New[string]()
	for i := range list {
		k, at := &list[i], path.Index(i)
		if problems := validation.IsDNS1123Label(k.Name); len(problems) > 0 {
			errs = append(errs, field.Invalid(at.Child("name"), k.Name, strings.Join(problems, "; ")))
		} else if seen.Has(k.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), k.Name))
		}
		seen.Insert(k.Name)
		errs = append(errs, k.validate(at)...)
	}
	return errs
}

func (k *Kind) validate(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case len(k.Pods) == 0 && !k.Disabled:
		errs = append(errs, field.Required(at.Child("pods"),
			"say where pods name their gang, or switch the kind off with disabled: true"))
	case len(k.Pods) > maxWays:
		errs = append(errs, field.TooMany(at.Child("pods"), len(k.Pods), maxWays))
	}
	for i, way := range k.Pods {
		in := at.Child("pods").Index(i)
		if _, err := parsePodPath(way.Name); err != nil {
			errs = append(errs, field.Invalid(in.Child("name"), way.Name, err.Error()))
		}
		if way.Minimum == "" {
			if k.Object == nil {
				errs = append(errs, field.Required(in.Child("minimum"),
					"say where the pod has the minimum, or which object has it"))
			}
		} else if _, err := parsePodPath(way.Minimum); err != nil {
			errs = append(errs, field.Invalid(in.Child("minimum"), way.Minimum, err.Error()))
		}
		if _, err := parsePodPath(way.Task); way.Task != "" && err != nil {
			errs = append(errs, field.Invalid(in.Child("task"), way.Task, err.Error()))
		}
	}
	if k.Object != nil {
		errs = append(errs, k.Object.validate(at.Child("object"))...)
	}
	return append(errs, k.Redirect.Validate(at.Child("redirect"))...)
}

func (o *Object) validate(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if problems := validation.IsDNS1123Subdomain(o.Group); len(problems) > 0 {
		errs = append(errs, field.Invalid(at.Child("group"), o.Group, strings.Join(problems, "; ")))
	}
	if problems := validation.IsDNS1123Label(o.Resource); len(problems) > 0 {
		errs = append(errs, field.Invalid(at.Child("resource"), o.Resource, "must be the plural name, such as podgroups: "+
			strings.Join(problems, "; ")))
	}
	switch {
	case len(o.Versions) == 0:
		errs = append(errs, field.Required(at.Child("versions"), "name at least one, such as v1"))
	case len(o.Versions) > maxVersions:
		errs = append(errs, field.TooMany(at.Child("versions"), len(o.Versions), maxVersions))
	}
	seen := sets.New[string]()
	for i, version := range o.Versions {
		in := at.Child("versions").Index(i)
		if problems := validation.IsDNS1035Label(version); len(problems) > 0 {
			errs = append(errs, field.Invalid(in, version, strings.Join(problems, "; ")))
		} else if seen.Has(version) {
			errs = append(errs, field.Duplicate(in, version))
		}
		seen.Insert(version)
	}
	if _, err := parseObjectPath(o.Minimum); err != nil {
		errs = append(errs, field.Invalid(at.Child("minimum"), o.Minimum,
			fmt.Sprintf("must be a JSON path, such as .spec.minMember: %v", err)))
	}
	if _, err := parseObjectPath(o.Tasks); o.Tasks != "" && err != nil {
		errs = append(errs, field.Invalid(at.Child("tasks"), o.Tasks,
			fmt.Sprintf("must be a JSON path, such as .spec.minTaskMember: %v", err)))
	}
	return errs
}
