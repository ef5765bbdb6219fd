package extender

import (
	"bytes"
	"errors"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/decide"
	"github.com/globalreserve/globalreserve/pkg/decide/gates"
	"github.com/globalreserve/globalreserve/pkg/http/auth"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// maxName bounds the names and the UID of a pod in bytes, as the API server does.
const maxName = 253

// maxNodes is how many nodes a request may name.
const maxNodes = 100_000

// args is extenderv1.ExtenderArgs, decoded no further than needed.
type args struct {
	Pod       jsontext.Value
	Nodes     *struct{ Items nodeItems }
	NodeNames nodeNames
}

// candidates are the nodes that a request names.
type candidates struct {
	names []string
	// plain says that no name has anything in it that JSON escapes.
	plain bool
	items []jsontext.Value // nil where the request had names only
}

// candidates returns the candidate nodes.
func (a *args) candidates() (*candidates, error) {
	switch {
	case a.NodeNames.names != nil:
		return &candidates{names: a.NodeNames.names, plain: a.NodeNames.plain}, nil
	case a.Nodes != nil:
		c := &candidates{names: make([]string, len(a.Nodes.Items)), items: make([]jsontext.Value, len(a.Nodes.Items))}
		for i, item := range a.Nodes.Items {
			if c.names[i], c.items[i] = item.name, item.raw; item.name == "" {
				return nil, badRequest("Nodes.items[%d].metadata.name is missing: send whole nodes, or their names in NodeNames", i)
			}
		}
		return c, nil
	default:
		return nil, badRequest("Nodes and NodeNames are both missing: send the candidate nodes in one of them")
	}
}

// nodeNames is a list of strings that share one copy of the request's text.
type nodeNames struct {
	names []string // nil where there was none
	plain bool
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom. kube-scheduler writes no spaces, and no name needs an escape: such
// a list is not read name by name.
func (n *nodeNames) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	raw, err := dec.ReadValue()
	if err != nil {
		return err
	}
	*n = nodeNames{}
	text := string(raw)
	quotes := strings.Count(text, `"`)
	inner, opened := strings.CutPrefix(text, `["`)
	inner, closed := strings.CutSuffix(inner, `"]`)
	if opened && closed && quotes <= 2*maxNodes && !strings.Contains(text, `\`) {
		n.names = strings.Split(inner, `","`)
		n.plain = quotes == 2*len(n.names)
	}
	if !n.plain {
		n.names, err = httpjson.Slice[string](jsontext.NewDecoder(strings.NewReader(text)), maxNodes)
	}
	return err
}

// nodeItems are nodes that are passed on as they came.
type nodeItems []nodeItem

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (n *nodeItems) UnmarshalJSONFrom(dec *jsontext.Decoder) (err error) {
	*n, err = httpjson.Slice[nodeItem](dec, maxNodes)
	return err
}

type nodeItem struct {
	name string
	raw  jsontext.Value
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (n *nodeItem) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	raw, err := dec.ReadValue()
	if err != nil {
		return err
	}
	var node struct{ Metadata struct{ Name string } }
	if err := json.Unmarshal(raw, &node, dec.Options()); err != nil {
		return errors.New("want a node with a metadata.name")
	}
	n.name, n.raw = node.Metadata.Name, bytes.Clone(raw)
	return nil
}

// named is what is needed of a pod to find it elsewhere.
type named struct {
	Metadata struct {
		Namespace, Name, UID, ResourceVersion string
	}
	Status struct{ NominatedNodeName string }
}

// query names the pod of a request. The copy in the request is decoded only where there is nothing better to go by.
func (e *Extender) query(raw jsontext.Value) (*decide.PodQuery, error) {
	query, err := identify(raw)
	if err != nil {
		return nil, err
	}
	query.Copy = func() (*cluster.Pod, error) { return e.copied(raw, query.Ref) }
	return query, nil
}

// copied decodes the copy of a pod in a request.
func (e *Extender) copied(raw jsontext.Value, ref ledger.PodRef) (*cluster.Pod, error) {
	var pod v1.Pod
	if err := httpjson.Unmarshal(raw, &pod, httpjson.Quantities); err != nil {
		return nil, badRequest("Pod: %s", err)
	}
	if (ledger.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}) != ref {
		return nil, badRequest("Pod.metadata is ambiguous: send every field once")
	}
	info, err := e.o.Arbiter.Reader().NewPod(&pod)
	if err != nil {
		return nil, &decide.UncountableError{Cause: err}
	}
	return info, nil
}

// asRefused gives the error of advice a status that says whose fault it is.
func asRefused(err error) error {
	switch {
	case errors.As(err, new(*decide.UncountableError)):
		return badRequest("%s", err)
	case errors.As(err, new(*auth.DeniedError)), errors.Is(err, auth.ErrUnreachable):
		return httpjson.Errorf(auth.Status(err), "%s", err)
	case errors.As(err, new(*gates.Error)): // the server stops, or another one decides, since the request came in
		return httpjson.Errorf(http.StatusServiceUnavailable, "%s", err)
	default:
		return err
	}
}

// identify returns which pod a request is about, at which resource version, and where
// it is nominated. The version is 0 where it cannot come from the API server.
func identify(raw jsontext.Value) (*decide.PodQuery, error) {
	if len(raw) == 0 || raw.Kind() == 'n' {
		return nil, badRequest("Pod is missing: send the pod that is being scheduled")
	}
	var pod named
	if err := httpjson.Unmarshal(raw, &pod); err != nil {
		return nil, badRequest("Pod: %s", err)
	}
	m := &pod.Metadata
	for _, m := range [...]struct{ field, value string }{{"namespace", m.Namespace}, {"name", m.Name}, {"uid", m.UID}} {
		if m.value == "" {
			return nil, badRequest("Pod.metadata.%s is missing: send the pod as the API server has it", m.field)
		}
		if len(m.value) > maxName {
			return nil, badRequest("Pod.metadata.%s is longer than %d bytes: send the pod as the API server has it", m.field,
				maxName)
		}
	}
	return &decide.PodQuery{
		Ref:     ledger.PodRef{Namespace: m.Namespace, Name: m.Name, UID: types.UID(m.UID)},
		Version: cluster.ParseVersion(m.ResourceVersion), Nominated: pod.Status.NominatedNodeName,
	}, nil
}
