package rest

import (
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/pkg/reserver"
	"github.com/globalreserve/globalreserve/pkg/server/admission"
)

// document is what the tests need of an OpenAPI document.
type document struct {
	OpenAPI    string                               `json:"openapi"`
	Paths      map[string]map[string]map[string]any `json:"paths"`
	Components struct {
		Schemas map[string]struct {
			Properties map[string]any `json:"properties"`
		} `json:"schemas"`
	} `json:"components"`
}

func readDocument(t *testing.T) document {
	f := newFixture(t, Limits{})
	got := f.serve(http.MethodGet, "/openapi.yaml", "")
	require.Equal(t, http.StatusOK, got.Code)
	var doc document
	require.NoError(t, yaml.Unmarshal(got.Body.Bytes(), &doc))
	return doc
}

func TestEveryRouteIsDocumented(t *testing.T) {
	doc := readDocument(t)
	assert.Equal(t, "3.0.3", doc.OpenAPI)
	parameter := regexp.MustCompile(`:(\w+)`)
	documented := map[string]bool{}
	for path, methods := range doc.Paths {
		for method, operation := range methods {
			documented[strings.ToUpper(method)+" "+path] = true
			assert.NotEmpty(t, operation["summary"], path)
			assert.NotEmpty(t, operation["responses"], path)
		}
	}
	for _, r := range new(API).routes() {
		route := r.method + " " + parameter.ReplaceAllString(r.path, "{$1}")
		assert.Contains(t, documented, route)
		delete(documented, route)
	}
	var others []string
	for route := range documented {
		others = append(others, route)
	}
	slices.Sort(others)
	assert.Equal(t, []string{
		"GET /healthz", "GET /livez", "GET /metrics", "GET /readyz", "GET /version", "POST " + admission.Path, "POST " +
			admission.PodsPath, "POST " + admission.ResourceClaimsPath,
		"POST /bind", "POST /filter", "POST /preempt", "POST /prioritize",
	}, others,
		"of the other packages")
}

// The schemas have the fields that the Go types have.
func TestSchemasMatchTypes(t *testing.T) {
	doc := readDocument(t)
	for name, value := range map[string]any{
		"GangAnswer": reserver.Answer{}, "Rejection": reserver.Rejection{}, "Holder": reserver.Holder{},
		"Assignment":   reserver.Assignment{},
		"WhatIfAnswer": reserver.WhatIfAnswer{}, "NodeAmount": reserver.NodeAmount{}, "Node": reserver.Node{},
		"Allocation":  reserver.Allocation{},
		"NodesAnswer": reserver.NodesAnswer{}, "NodeAnswer": reserver.NodeAnswer{},
		"AllocationsAnswer": reserver.AllocationsAnswer{},
		"ExplainAnswer":     reserver.ExplainAnswer{}, "RefusalGroup": reserver.RefusalGroup{},
		"ClosestNode":        reserver.ClosestNode{},
		"ReservationsAnswer": reserver.ReservationsAnswer{}, "Reservation": reserver.Reservation{},
		"PendingReservation": reserver.PendingReservation{}, "SlotLacks": reserver.SlotLacks{}, "Slot": reserver.Slot{},
		"Consumer": reserver.Consumer{},
		"NodeSlot": reserver.NodeSlot{}, "PodName": reserver.PodName{}, "WatchSlot": reserver.WatchSlot{},
		"PendingAnswer": reserver.PendingAnswer{}, "PendingPod": reserver.PendingPod{}, "NodeNeed": reserver.NodeNeed{},
		"RefusalsAnswer": reserver.RefusalsAnswer{}, "Refusal": reserver.Refusal{},
		"DiffAnswer": reserver.DiffAnswer{}, "Difference": reserver.Difference{},
		"GangsAnswer": reserver.GangsAnswer{}, "Gang": reserver.Gang{},
		"RevisionAnswer": reserver.RevisionAnswer{}, "Device": reserver.Device{}, "GivenDevices": reserver.GivenDevices{},
		"MissingAmount": reserver.MissingAmount{}, "WatchSnapshot": reserver.WatchSnapshot{},
		"WatchAllocation": reserver.WatchAllocation{},
		"WatchNode":       reserver.WatchNode{}, "WatchedNode": reserver.WatchedNode{},
		"WatchBookmark": reserver.WatchBookmark{}, "DumpAnswer": reserver.DumpAnswer{},
		"WatchBatch": reserver.WatchBatch{}, "WatchChange": reserver.WatchChange{},
	} {
		assert.ElementsMatch(t, fieldNames(value), keys(doc.Components.Schemas[name].Properties), name)
	}
	known := fieldNames(gangRequest{})
	assert.ElementsMatch(t, known, append(fieldNames(reserver.Request{}), "Without"), "of the Go API")
	for _, name := range []string{"ReserveRequest", "UnreserveRequest", "WhatIfRequest"} {
		properties := keys(doc.Components.Schemas[name].Properties)
		require.NotEmpty(t, properties)
		assert.Subset(t, known, properties, name)
	}
}

func TestReferencesResolve(t *testing.T) {
	var doc map[string]any
	require.NoError(t, yaml.UnmarshalStrict(openAPI, &doc))
	references := regexp.MustCompile(`\$ref: "#/([^"]+)"`).FindAllSubmatch(openAPI, -1)
	require.NotEmpty(t, references)
	for _, match := range references {
		var at any = doc
		for step := range strings.SplitSeq(string(match[1]), "/") {
			object, ok := at.(map[string]any)
			require.True(t, ok, string(match[1]))
			at = object[step]
		}
		assert.NotNil(t, at, string(match[1]))
	}
}

func fieldNames(value any) []string {
	var names []string
	for field := range reflect.TypeOf(value).Fields() {
		if field.Name != "Unknown" {
			names = append(names, field.Name)
		}
	}
	return names
}

func keys(m map[string]any) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	return names
}

// The routes that other packages register are in the document as well.
func TestRoutesOfOtherPackagesAreDocumented(t *testing.T) {
	doc := readDocument(t)
	files, err := filepath.Glob("../../app/*.go")
	require.NoError(t, err)
	registered := regexp.MustCompile(`router\.Handler(?:Func)?\(\S+, "(/[^"]*)"`)
	routes := []string{
		"/filter", "/prioritize", "/preempt", "/bind", admission.Path, admission.PodsPath,
		admission.ResourceClaimsPath,
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, match := range registered.FindAllSubmatch(content, -1) {
			routes = append(routes, string(match[1]))
		}
	}
	assert.GreaterOrEqual(t, len(routes), 6+5, "what registers them looks different now")
	for _, route := range routes {
		assert.Contains(t, doc.Paths, route)
	}
}
