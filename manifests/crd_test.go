package manifests_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// property is what a schema says of a field, as far as `kubectl explain` has a place for it.
type property struct {
	Description                      string
	Enum                             []string
	Default                          any
	Maximum, MaxItems, MaxProperties *int64
	Properties                       map[string]property
	Items                            *property
}

// What `kubectl explain` tells of a field of ours is enough to fill it in: what it is, what each of its values does,
// what it is where it is left out, and how much of it there may be.
func TestEveryFieldIsExplained(t *testing.T) {
	files, err := filepath.Glob("crd/globalreserve.io_*.yaml")
	require.NoError(t, err)
	require.Len(t, files, 5)
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		var definition struct {
			Spec struct {
				Names    struct{ Kind string }
				Versions []struct {
					Schema struct{ OpenAPIV3Schema property }
				}
			}
		}
		require.NoError(t, yaml.Unmarshal(content, &definition))
		require.NotEmpty(t, definition.Spec.Versions)
		for _, version := range definition.Spec.Versions {
			schema := version.Schema.OpenAPIV3Schema
			assert.NotEmpty(t, schema.Description, file)
			require.Contains(t, schema.Properties, "spec", file)
			for _, name := range []string{"spec", "status"} {
				if field, there := schema.Properties[name]; there {
					checkExplained(t, definition.Spec.Names.Kind+"."+name, &field)
				}
			}
		}
	}
}

func checkExplained(t *testing.T, path string, field *property) {
	t.Helper()
	says := func(what string, value any) {
		t.Helper()
		if !strings.Contains(field.Description, strings.TrimSpace(fmt.Sprint(value))) {
			t.Errorf("%s: the description does not name its %s %v: %q", path, what, value, field.Description)
		}
	}
	if field.Description == "" {
		t.Errorf("%s has no description", path)
	}
	for _, value := range field.Enum {
		says("value", value)
	}
	if field.Default != nil {
		says("default", field.Default)
	}
	for _, limit := range []*int64{field.Maximum, field.MaxItems, field.MaxProperties} {
		if limit != nil {
			says("limit", *limit)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(field.Properties)) {
		inner := field.Properties[name]
		checkExplained(t, path+"."+name, &inner)
	}
	if field.Items != nil && len(field.Items.Properties) > 0 {
		checkExplained(t, path+"[]", field.Items)
	}
}
