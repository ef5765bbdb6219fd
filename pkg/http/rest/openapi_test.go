package rest

import (
	"cmp"
	"maps"
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

	"github.com/globalreserve/globalreserve/pkg/http/admission"
	"github.com/globalreserve/globalreserve/pkg/reserver"
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
	assert.Equal(t, []string{
		"GET /healthz", "GET /livez", "GET /metrics", "GET /readyz", "GET /version", "POST " + admission.Path,
		"POST " + admission.PodsPath, "POST " + admission.ResourceClaimsPath,
		"POST /bind", "POST /filter", "POST /preempt", "POST /prioritize",
	}, slices.Sorted(maps.Keys(documented)), "of the other packages")
}

// The schemas have the fields that the Go types have, and those that are in them.
func TestSchemasMatchTypes(t *testing.T) {
	doc := readDocument(t)
	seen := map[reflect.Type]bool{}
	var check func(name string, of reflect.Type)
	check = func(name string, of reflect.Type) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
			of = of.Elem()
		}
		if seen[of] || of.Kind() != reflect.Struct || of.PkgPath() != reflect.TypeFor[reserver.Answer]().PkgPath() {
			return
		}
		seen[of] = true
		name = cmp.Or(name, of.Name())
		if name != "NodeDevice" { // which is a Device and more
			assert.ElementsMatch(t, fieldNames(of), keys(doc.Components.Schemas[name].Properties), name)
		}
		for field := range of.Fields() {
			check("", field.Type)
		}
	}
	for name, value := range map[string]any{
		"GangAnswer": reserver.Answer{}, "WhatIfAnswer": reserver.WhatIfAnswer{}, "NodesAnswer": reserver.NodesAnswer{},
		"NodeAnswer": reserver.NodeAnswer{}, "AllocationsAnswer": reserver.AllocationsAnswer{},
		"ExplainAnswer": reserver.ExplainAnswer{}, "ReservationsAnswer": reserver.ReservationsAnswer{},
		"PendingAnswer": reserver.PendingAnswer{}, "RefusalsAnswer": reserver.RefusalsAnswer{},
		"DiffAnswer": reserver.DiffAnswer{}, "GangsAnswer": reserver.GangsAnswer{}, "DumpAnswer": reserver.DumpAnswer{},
		"RevisionAnswer": reserver.RevisionAnswer{}, "WatchSnapshot": reserver.WatchSnapshot{},
		"WatchAllocation": reserver.WatchAllocation{}, "WatchNode": reserver.WatchNode{}, "WatchSlot": reserver.WatchSlot{},
		"WatchBatch": reserver.WatchBatch{}, "DrainPlanAnswer": reserver.DrainPlanAnswer{},
		"DrainPlanRequest": reserver.DrainPlanRequest{},
	} {
		check(name, reflect.TypeOf(value))
	}
	known := fieldNames(reflect.TypeFor[gangRequest]())
	assert.ElementsMatch(t, known, append(fieldNames(reflect.TypeFor[reserver.Request]()), "Without"), "of the Go API")
	for _, name := range []string{"ReserveRequest", "UnreserveRequest", "WhatIfRequest"} {
		properties := keys(doc.Components.Schemas[name].Properties)
		require.NotEmpty(t, properties)
		assert.Subset(t, known, properties, name)
	}
}

func fieldNames(of reflect.Type) []string {
	var names []string
	for field := range of.Fields() {
		if field.Name != "Unknown" {
			names = append(names, field.Name)
		}
	}
	return names
}

func keys(m map[string]any) []string { return slices.Collect(maps.Keys(m)) }

// The routes that other packages register are in the document as well.
func TestRoutesOfOtherPackagesAreDocumented(t *testing.T) {
	doc := readDocument(t)
	files, err := filepath.Glob("../../app/*.go")
	require.NoError(t, err)
	registered := regexp.MustCompile(`router\.Handler(?:Func)?\(\S+, "(/[^"]*)"`)
	var routes []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, match := range registered.FindAllSubmatch(content, -1) {
			routes = append(routes, string(match[1]))
		}
	}
	assert.GreaterOrEqual(t, len(routes), 4, "what registers them looks different now")
	for _, route := range routes {
		assert.Contains(t, doc.Paths, route)
	}
}
