package cluster

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// DeviceAnnotations are what a pod's annotations say of devices.
type DeviceAnnotations struct {
	// Asked is the annotation extended-resource-claims as it was written; the beginning of one that cannot be read.
	Asked string
	// Claims are the names of the pod's claims, in the order in which they are first written. Of a claim that is made from
	// a template it is the name that it has, or will have, and empty as long as the pod has no UID.
	Claims []string
	// Templates are the templates that the claims are made from, one for each: empty for one that is not. nil: none is.
	Templates []string
	// Containers say which claims each container has; nil where the pod does not say.
	Containers []devices.ContainerClaims
	// Err says what is wrong with the annotation where it cannot be read; Claims is nil then.
	Err string
	// Given is what the pod was bound with: the annotation extended-resources as it was
	// written. It counts once the pod has a node.
	Given string
}

// Same reports whether two pods, or two states of one, say the same; either may be nil.
func (m *DeviceAnnotations) Same(o *DeviceAnnotations) bool {
	if m == nil || o == nil {
		return m == o
	}
	return m.Err == o.Err && m.Given == o.Given && slices.Equal(m.Claims, o.Claims) &&
		slices.Equal(m.Templates, o.Templates) &&
		slices.EqualFunc(m.Containers, o.Containers, devices.ContainerClaims.Same)
}

// Template returns the template that claim k is made from, or "".
func (m *DeviceAnnotations) Template(k int) string {
	if m.Templates == nil {
		return ""
	}
	return m.Templates[k]
}

// Asks reports whether a pod claims devices, or tries to. A pod that claims none may still say that it has some,
// because it asks for them by count.
func (m *DeviceAnnotations) Asks() bool { return m != nil && (len(m.Claims) > 0 || m.Err != "") }

// ReadDeviceAnnotations reads the annotations of a pod. It returns nil for a pod that claims no devices and has none,
// as for nearly all pods.
func ReadDeviceAnnotations(pod *v1.Pod) *DeviceAnnotations {
	text, given := pod.Annotations[v1alpha1.ExtendedResourceClaimsAnnotation],
		pod.Annotations[v1alpha1.ExtendedResourcesAnnotation]
	if text == "" && given == "" {
		return nil
	}
	if pod.Spec.NodeName == "" {
		given = kinds.Clip(given, maxText) // it was given nothing yet
	}
	marks := NewDeviceAnnotations(ledger.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}, text)
	switch {
	case marks == nil && given == "":
		return nil
	case marks == nil:
		return &DeviceAnnotations{Given: given}
	}
	for _, c := range marks.Containers {
		if !hasContainer(&pod.Spec, c.Name) {
			marks = &DeviceAnnotations{
				Asked: text,
				Err: fmt.Sprintf("annotation %s: the pod has no container %s: write names of its containers or initContainers",
					v1alpha1.ExtendedResourceClaimsAnnotation, c.Name),
			}
			break
		}
	}
	marks.Given = given
	return marks
}

// NewDeviceAnnotations returns what a text in a pod's annotation extended-resource-claims says, whatever containers the
// pod has; nil where it names no claims.
func NewDeviceAnnotations(pod ledger.PodRef, text string) *DeviceAnnotations {
	asked, err := devices.ReadAsked(text)
	switch {
	case err != nil:
		return &DeviceAnnotations{Asked: kinds.Clip(text, maxText), Err: err.Error()}
	case len(asked.Claims) == 0:
		return nil
	}
	marks := &DeviceAnnotations{Asked: text, Claims: make([]string, len(asked.Claims)), Containers: asked.Containers}
	for k, claim := range asked.Claims {
		marks.Claims[k] = claim.Name
		if !claim.Template {
			continue
		}
		if marks.Templates == nil {
			marks.Templates = make([]string, len(asked.Claims))
		}
		marks.Templates[k], marks.Claims[k] = claim.Name, devices.TemplateClaim(pod.Name, pod.UID, claim.Name)
	}
	return marks
}

// hasContainer reports whether a pod has a container of a name. In a copy in a request the names may not be known.
func hasContainer(spec *v1.PodSpec, name string) bool {
	named := func(c v1.Container) bool { return c.Name == name || c.Name == "" }
	return len(spec.Containers) == 0 || slices.ContainsFunc(spec.Containers, named) ||
		slices.ContainsFunc(spec.InitContainers, named)
}

// Tell returns the text of the annotation extended-resources, which says what a pod was given. Devices for what it asks
// for by count belong to no particular container, and come last.
func (m *DeviceAnnotations) Tell(given []ledger.GivenDevices) string {
	var all, byCount []string
	byClaim := map[string][]string{}
	for _, g := range given {
		all = append(all, g.IDs...)
		if g.Claim.Name == "" {
			byCount = append(byCount, g.IDs...)
		}
		byClaim[g.Claim.Name] = g.IDs
	}
	if m == nil || len(m.Containers) == 0 || len(all) == 0 {
		return strings.Join(all, ",")
	}
	sections := make([]string, 0, len(m.Containers)+1)
	for _, c := range m.Containers {
		var ids []string
		for _, k := range c.Claims {
			ids = append(ids, byClaim[m.Claims[k]]...)
		}
		sections = append(sections, c.Name+"="+strings.Join(ids, ","))
	}
	if len(byCount) > 0 {
		sections = append(sections, "="+strings.Join(byCount, ","))
	}
	return strings.Join(sections, ";")
}

// GivenIDs returns what the pod says it was bound with as a plain list, claim by claim. counts are how many devices
// each of the claims is for; nil where that is not known.
func (m *DeviceAnnotations) GivenIDs(counts []int) string {
	if !strings.Contains(m.Given, "=") { // no ID has one
		return m.Given
	}
	var sections [][]string
	var byCount []string
	for section := range strings.SplitSeq(m.Given, ";") {
		container, ids, ok := strings.Cut(section, "=")
		if !ok {
			ids = section
		}
		if ok && container == "" && len(sections) == len(m.Containers) {
			byCount = strings.FieldsFunc(ids, func(c rune) bool { return c == ',' })
			continue
		}
		sections = append(sections, strings.FieldsFunc(ids, func(c rune) bool { return c == ',' }))
	}
	if ids := m.byClaim(sections, counts); ids != nil {
		return strings.Join(append(slices.Concat(ids...), byCount...), ",")
	}
	sections = append(sections, byCount)
	// It is not known which claims the IDs are for. So an ID that is there twice may stand for one device, or for all that
	// have the ID.
	var ids []string
	seen := map[string]bool{}
	for _, id := range slices.Concat(sections...) {
		if !seen[id] {
			seen[id], ids = true, append(ids, id)
		}
	}
	return strings.Join(ids, ",")
}

// byClaim returns the IDs of each claim, nil where the sections of the containers do not match the claims.
func (m *DeviceAnnotations) byClaim(sections [][]string, counts []int) [][]string {
	if len(sections) != len(m.Containers) || len(counts) != len(m.Claims) {
		return nil
	}
	ids := make([][]string, len(m.Claims))
	for i, c := range m.Containers {
		rest := sections[i]
		for _, k := range c.Claims {
			if len(rest) < counts[k] || (ids[k] != nil && !slices.Equal(ids[k], rest[:counts[k]])) {
				return nil
			}
			ids[k], rest = rest[:counts[k]], rest[counts[k]:]
		}
		if len(rest) > 0 {
			return nil
		}
	}
	return ids
}

// Given adds the devices that the pod was given to the annotations that are written with its binding. A pod that was
// created with that annotation, as a copy of another one, gets its own in place of it. annotations may be nil, and is
// not changed where the pod claims no devices and was given none.
func (i *Pod) Given(annotations map[string]string, given []ledger.GivenDevices) map[string]string {
	if i.Devices == nil && len(given) == 0 {
		return annotations
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1alpha1.ExtendedResourcesAnnotation] = i.Devices.Tell(given)
	return annotations
}
