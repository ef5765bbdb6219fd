package devices

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

// Named reports whether there may be devices of a resource: the names of such resources have a domain. Hugepages have
// none, and are asked for by the million.
func Named(resource string) bool { return strings.Contains(resource, "/") }

// Asked is which claims a pod's annotation globalreserve.io/extended-resource-claims names.
type Asked struct {
	// Claims are each named once, in the order in which they are first named.
	Claims []ClaimName
	// Containers say which claims each container has; nil where the annotation does not say.
	Containers []ContainerClaims
}

// ClaimName names a claim, or a template that the pod gets a claim of its own from.
type ClaimName struct {
	Name     string
	Template bool
}

// String returns the name as the annotation has it.
func (n ClaimName) String() string {
	if n.Template {
		return v1alpha1.ClaimTemplatePrefix + n.Name
	}
	return n.Name
}

// ContainerClaims are the claims of one container: indices into the claims of the pod.
type ContainerClaims struct {
	Name   string
	Claims []int
}

// Same reports whether two containers of one name have the same claims.
func (c ContainerClaims) Same(o ContainerClaims) bool {
	return c.Name == o.Name && slices.Equal(c.Claims, o.Claims)
}

// maxAsked bounds what is read, in bytes: as many claims as a pod may have, or those of many containers. The API server
// takes much longer annotations, of more containers than can be compared with each other in a second.
const maxAsked = 4 << 10

// containerForm is how to write claims for each container.
const containerForm = "write container=claim,claim;container=claim with each container of the pod that has claims once"

// ReadAsked reads a pod's annotation globalreserve.io/extended-resource-claims: names of claims, separated by
// commas, or such a list for each container: container=claim,claim;container=claim. There may be spaces around
// names. A claim that several containers name is one claim that they share. An absent or empty annotation names none.
func ReadAsked(annotation string) (Asked, error) {
	asked := Asked{}
	if err := asked.read(annotation); err != nil {
		return Asked{}, fmt.Errorf("annotation %s: %w", v1alpha1.ExtendedResourceClaimsAnnotation, err)
	}
	return asked, nil
}

func (a *Asked) read(annotation string) error {
	if strings.TrimSpace(annotation) == "" {
		return nil
	}
	if len(annotation) > maxAsked {
		return fmt.Errorf("longer than %d bytes: give claims shorter names, or name them for fewer containers", maxAsked)
	}
	if !strings.ContainsAny(annotation, "=;") {
		_, err := a.add(annotation, "")
		return err
	}
	for section := range strings.SplitSeq(annotation, ";") {
		name, claims, ok := strings.Cut(section, "=")
		name = strings.TrimSpace(name)
		switch {
		case !ok:
			return fmt.Errorf("%.253q says for no container: %s, or a list of claims alone", name, containerForm)
		case len(validation.IsDNS1123Label(name)) > 0:
			return fmt.Errorf("%.253q is no container's name: %s", name, containerForm)
		case slices.ContainsFunc(a.Containers, func(c ContainerClaims) bool { return c.Name == name }):
			return fmt.Errorf("container %s is there twice: %s", name, containerForm)
		case strings.TrimSpace(claims) == "":
			return fmt.Errorf("container %s has no claims: leave it out, or name its claims after the =", name)
		}
		indices, err := a.add(claims, name)
		if err != nil {
			return err
		}
		a.Containers = append(a.Containers, ContainerClaims{Name: name, Claims: indices})
	}
	return nil
}

// add adds a list of claims, and returns where they are.
func (a *Asked) add(list, container string) (indices []int, err error) {
	for text := range strings.SplitSeq(list, ",") {
		claim := ClaimName{Name: strings.TrimSpace(text)}
		if name, of := strings.CutPrefix(claim.Name, v1alpha1.ClaimTemplatePrefix); of {
			claim = ClaimName{Name: name, Template: true}
		}
		if bad := validation.IsDNS1123Subdomain(claim.Name); len(bad) > 0 {
			return nil,
				fmt.Errorf("%.253q is no claim's name: write names of claims of the pod's namespace, or %sNAME for a claim made "+
					"from a template, separated by commas",
					claim, v1alpha1.ClaimTemplatePrefix)
		}
		i := slices.Index(a.Claims, claim)
		switch {
		case i < 0 && len(a.Claims) == v1alpha1.MaxPodClaims:
			return nil, fmt.Errorf("more than %d claims: claim several devices by one claim's count", v1alpha1.MaxPodClaims)
		case i < 0:
			i = len(a.Claims)
			a.Claims = append(a.Claims, claim)
		case container == "" || slices.Contains(indices, i):
			return nil, fmt.Errorf("%s is named twice%s: write it once, and claim more devices by its count", claim,
				of(container))
		}
		indices = append(indices, i)
	}
	return indices, nil
}

func of(container string) string {
	if container == "" {
		return ""
	}
	return " for container " + container
}

// The parts of the name of a claim that is made from a template are cut to these lengths: with them it has no more
// characters than an object's name may have.
const (
	maxPodPart      = 100
	maxTemplatePart = 100
)

// TemplateClaim returns the name of the claim that a pod gets from a template: the same at any time, and another
// one for a later pod of the same name. It is empty for a pod that has no UID yet.
func TemplateClaim(pod string, uid types.UID, template string) string {
	if uid == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(string(uid) + "/" + template))
	return prefix(pod, maxPodPart) + "-" + prefix(template, maxTemplatePart) + "-" + hex.EncodeToString(sum[:])[:10]
}

// prefix cuts a name so that another part can follow.
func prefix(name string, most int) string {
	return strings.TrimRight(name[:min(len(name), most)], "-.")
}
