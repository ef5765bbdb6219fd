package rest

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/decide/reserve"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// slimPod is the part of a v1.Pod that accounting needs. A scheduler sends whole
// pods, a few KiB each; everything that is not in here is skipped unparsed.
type slimPod struct {
	Metadata struct {
		Name      string    `json:"name"`
		Namespace string    `json:"namespace"`
		UID       types.UID `json:"uid"`
		// Annotations of devices are looked at; no others are kept.
		Annotations deviceAnnotations `json:"annotations"`
	} `json:"metadata"`
	Spec slimPodSpec `json:"spec"`
}

// deviceAnnotations is the one annotation that says what a pod asks for.
type deviceAnnotations struct {
	Claims string `json:"globalreserve.io/extended-resource-claims"`
}

type slimPodSpec struct {
	NodeName       string             `json:"nodeName"`
	HostNetwork    bool               `json:"hostNetwork"`
	Priority       *int32             `json:"priority"`
	Containers     few[slimContainer] `json:"containers"`
	InitContainers few[slimContainer] `json:"initContainers"`
	Overhead       resourceList       `json:"overhead"`
	Resources      *slimResources     `json:"resources"`
	Tolerations    few[v1.Toleration] `json:"tolerations"`
	// ResourceClaims are not decided on, and the answer says so.
	ResourceClaims few[v1.PodResourceClaim] `json:"resourceClaims"`
}

type slimContainer struct {
	Resources     slimResources              `json:"resources"`
	Ports         many[v1.ContainerPort]     `json:"ports"`
	RestartPolicy *v1.ContainerRestartPolicy `json:"restartPolicy"`
}

type slimResources struct {
	Requests resourceList `json:"requests"`
	Limits   resourceList `json:"limits"`
}

// resourceList is a v1.ResourceList whose quantities are checked before they are parsed.
type resourceList v1.ResourceList

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (l *resourceList) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*l = resourceList{}
	_, err := httpjson.Each(dec, '{', maxResourceNames, func() error {
		token, err := dec.ReadToken()
		if err != nil {
			return err
		}
		name := v1.ResourceName(token.String())
		if len(name) > maxResourceNameLength {
			return fmt.Errorf("a resource name is longer than %d bytes", maxResourceNameLength)
		}
		(*l)[name], err = httpjson.ReadQuantity(dec)
		return err
	})
	return err
}

// podEntry is what is kept of one pod of a request.
type podEntry struct {
	reserve.Pod
	nodeName string // spec.nodeName
}

// podList decodes Pods one by one into podEntries, so that the memory a request
// takes is bounded by the number of its pods and not by what they contain.
type podList struct {
	table        *resources.Table
	identityOnly bool // the request gives capacity back, and need not say how much
	entries      []podEntry
	claims       bool     // a pod names ResourceClaims
	warnings     []string // of the first pod without a namespace
	// err is the error of the first pod that was well-formed JSON and made no sense.
	err error
	// scratch is filled anew for each pod; nothing keeps a pointer to it.
	scratch v1.Pod
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (l *podList) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	l.entries, l.err, l.claims, l.warnings = nil, nil, false, nil
	i := 0
	_, err := httpjson.Each(dec, '[', MaxPods, func() error {
		var pod slimPod
		if err := json.UnmarshalDecode(dec, &pod, json.RejectUnknownMembers(false)); err != nil {
			return err
		}
		l.claims = l.claims || len(pod.Spec.ResourceClaims) > 0
		l.fill(&pod)
		l.add(i, &l.scratch)
		i++
		return nil
	})
	return err
}

// add keeps a pod, unless one before it was refused.
func (l *podList) add(i int, pod *v1.Pod) {
	if l.err != nil {
		return
	}
	entry, err := l.convert(pod)
	if err != nil {
		l.err = httpjson.Errorf(http.StatusBadRequest, "Pods[%d]: %s", i, err)
		return
	}
	l.entries = append(l.entries, entry)
	if pod.Namespace == "" && l.warnings == nil {
		l.warnings = append(l.warnings, fmt.Sprintf(noNamespace, i, entry.Ref))
	}
}

func (l *podList) convert(pod *v1.Pod) (podEntry, error) {
	namespace := cmp.Or(pod.Namespace, v1.NamespaceDefault) // as kubectl reads a manifest without one
	entry := podEntry{
		Pod: reserve.Pod{
			Ref: ledger.PodRef{Namespace: namespace, Name: pod.Name, UID: pod.UID}, Priority: ptr.Deref(pod.Spec.Priority, 0),
		},
		nodeName: pod.Spec.NodeName,
	}
	if err := checkRef(entry.Ref); err != nil {
		return entry, err
	}
	if l.identityOnly {
		return entry, nil
	}
	entry.Devices = cluster.ReadDeviceAnnotations(pod)
	if len(pod.Spec.Containers) == 0 {
		return entry, nil
	}
	if err := checkPorts(&pod.Spec); err != nil {
		return entry, err
	}
	request, err := resources.ForIncomingPod(l.table, pod)
	if err != nil {
		return entry, err
	}
	entry.Request = &request
	return entry, nil
}

// fill makes scratch the whole pod.
func (l *podList) fill(pod *slimPod) {
	spec := &pod.Spec
	l.scratch.ObjectMeta = metav1.ObjectMeta{
		Namespace: pod.Metadata.Namespace, Name: pod.Metadata.Name, UID: pod.Metadata.UID,
	}
	if claims := pod.Metadata.Annotations.Claims; claims != "" {
		l.scratch.Annotations = map[string]string{v1alpha1.ExtendedResourceClaimsAnnotation: claims}
	}
	containers := fillContainers(l.scratch.Spec.Containers, spec.Containers)
	initContainers := fillContainers(l.scratch.Spec.InitContainers, spec.InitContainers)
	l.scratch.Spec = v1.PodSpec{
		NodeName: spec.NodeName, HostNetwork: spec.HostNetwork, Priority: spec.Priority,
		Containers: containers, InitContainers: initContainers,
		Overhead: v1.ResourceList(spec.Overhead), Tolerations: spec.Tolerations,
	}
	if spec.Resources != nil {
		l.scratch.Spec.Resources = &v1.ResourceRequirements{
			Requests: v1.ResourceList(spec.Resources.Requests), Limits: v1.ResourceList(spec.Resources.Limits),
		}
	}
}

func fillContainers(reuse []v1.Container, list few[slimContainer]) []v1.Container {
	reuse = reuse[:0]
	for i := range list {
		c := &list[i]
		full := v1.Container{Ports: c.Ports, RestartPolicy: c.RestartPolicy}
		full.Resources.Requests = v1.ResourceList(c.Resources.Requests)
		full.Resources.Limits = v1.ResourceList(c.Resources.Limits)
		reuse = append(reuse, full)
	}
	return reuse
}

// checkRef refuses names no pod can have.
func checkRef(ref ledger.PodRef) error {
	if ref.Name == "" {
		return fmt.Errorf("metadata.name is missing")
	}
	if problem := badName(ref.Name); problem != "" {
		return fmt.Errorf("metadata.name \"%s\": %s", httpjson.Clip(ref.Name), problem)
	}
	if problems := validation.IsDNS1123Label(ref.Namespace); len(problems) > 0 {
		return fmt.Errorf("metadata.namespace \"%s\": %s", httpjson.Clip(ref.Namespace), problems[0])
	}
	if len(ref.UID) > maxUIDLength || !isPrintable(string(ref.UID)) {
		return fmt.Errorf("metadata.uid \"%s\" is longer than %d bytes or has unprintable characters",
			httpjson.Clip(string(ref.UID)), maxUIDLength)
	}
	return nil
}

// badName says what is wrong with the name of a pod or a node, or nothing.
func badName(name string) string {
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return problems[0]
	}
	return ""
}

func checkPorts(spec *v1.PodSpec) error {
	for where, list := range map[string][]v1.Container{
		"containers":     spec.Containers,
		"initContainers": spec.InitContainers,
	} {
		for i := range list {
			for k, p := range list[i].Ports {
				if !isPort(p.HostPort) || !isPort(p.ContainerPort) {
					return fmt.Errorf("spec.%s[%d].ports[%d] has hostPort %d and containerPort %d; ports are 1 to 65535",
						where, i, k, p.HostPort, p.ContainerPort)
				}
			}
		}
	}
	return nil
}

// isPort accepts 0 too, which stands for no port.
func isPort(n int32) bool { return n >= 0 && n <= 65535 }

// isPrintable reports whether s has no control characters.
func isPrintable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}
