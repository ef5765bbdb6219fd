package openapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// check says what is wrong with what the server has sent.
func check(data []byte, schema *openapi3.Schema) (violations []string) {
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		return []string{fmt.Sprintf("not JSON: %v: %.200s", err, data)}
	}
	if err := schema.VisitJSON(value, openapi3.VisitAsResponse(), openapi3.MultiErrors(),
		openapi3.EnableFormatValidation()); err != nil {
		violations = append(violations, describe(err))
	}
	return append(violations, unknown("", value, schema)...)
}

// describe tells the field and what is wrong with it, without the schema.
func describe(err error) string {
	var all openapi3.MultiError
	var one *openapi3.SchemaError
	switch {
	case errors.As(err, &all) && len(all) > 0:
		texts := make([]string, len(all))
		for i := range all {
			texts[i] = describe(all[i])
		}
		slices.Sort(texts)
		return strings.Join(slices.Compact(texts), "; ")
	case errors.As(err, &one):
		return fmt.Sprintf("/%s: %s", strings.Join(one.JSONPointer(), "/"), one.Reason)
	default:
		return err.Error()
	}
}

// unknown returns the fields of a value that its schema does not have. To those who read answers the schema leaves open
// which fields come later; the document has to tell all there are.
func unknown(at string, value any, schema *openapi3.Schema) (violations []string) {
	for _, one := range slices.Concat(schema.AnyOf, schema.OneOf) {
		if one.Value.VisitJSON(value, openapi3.VisitAsResponse()) == nil {
			return unknown(at, value, one.Value)
		}
	}
	switch value := value.(type) {
	case []any:
		items := schema.Items
		for i := 0; items != nil && i < len(value); i++ {
			violations = append(violations, unknown(fmt.Sprintf("%s/%d", at, i), value[i], items.Value)...)
		}
	case map[string]any:
		for name, field := range value {
			known, open := property(schema, name)
			switch {
			case known != nil:
				violations = append(violations, unknown(at+"/"+name, field, known)...)
			case !open:
				violations = append(violations, at+"/"+name+": the field is not in the document")
			}
		}
	}
	slices.Sort(violations)
	return violations
}

// property returns the schema of a field, nil where there is none. open says that any field may be there: an object
// that is given nothing but its type is described elsewhere, a v1.NodeList, say.
func property(schema *openapi3.Schema, name string) (known *openapi3.Schema, open bool) {
	if ref := schema.Properties[name]; ref != nil {
		return ref.Value, false
	}
	if ref := schema.AdditionalProperties.Schema; ref != nil {
		return ref.Value, false
	}
	open = len(schema.Properties) == 0
	for _, part := range schema.AllOf {
		known, more := property(part.Value, name)
		if known != nil {
			return known, false
		}
		open = open && more
	}
	return nil, open
}
