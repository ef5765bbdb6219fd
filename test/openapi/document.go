package openapi

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/globalreserve/globalreserve/test/controlplane"
)

// Document is an OpenAPI document to hold exchanges against.
type Document struct {
	doc *openapi3.T
}

// Read returns the document of the source tree.
var Read = sync.OnceValues(func() (*Document, error) {
	content, err := controlplane.ReadFile("pkg", "http", "rest", "openapi.yaml")
	if err != nil {
		return nil, err
	}
	return Parse(content)
})

// Parse reads a document, which must be one itself.
func Parse(content []byte) (*Document, error) {
	loader := openapi3.NewLoader()
	doc, err := loader.LoadFromData(content)
	if err == nil {
		err = doc.Validate(loader.Context)
	}
	if err != nil {
		return nil, fmt.Errorf("the OpenAPI document: %w", err)
	}
	return &Document{doc}, nil
}

// Exchange is a request and its answer.
type Exchange struct {
	Method string
	URL    *url.URL
	Type   string // the request's Content-Type
	Asked  []byte
	Status int
	Header http.Header // of the answer
	Answer []byte
	// Streams says that the answer is not whole: it broke off, or goes on for as long as somebody reads it. Event looks
	// at that.
	Streams bool
}

// Violations says where an exchange is not as the document has it.
func (d *Document) Violations(e *Exchange) []string {
	route, operation := d.find(e.Method, e.URL.Path)
	if operation == nil {
		if e.Status < http.StatusBadRequest {
			return []string{fmt.Sprintf("%s %s: the route is not in the document, and was answered with %d", e.Method,
				e.URL.Path, e.Status)}
		}
		return prefix(fmt.Sprintf("%s %s (no route), answer %d", e.Method, e.URL.Path, e.Status),
			d.matches(e.Answer, "Error"))
	}
	where := e.Method + " " + route
	var violations []string
	if err := request(operation, e); err != nil && e.Status < http.StatusBadRequest {
		violations = append(violations,
			fmt.Sprintf("%s: the document does not allow what was asked, and it was answered with %d: %v", where, e.Status, err))
	}
	where += fmt.Sprintf(", answer %d", e.Status)
	schema, err := answer(operation, e)
	switch {
	case err != nil:
		return append(violations, where+": "+err.Error())
	case e.Streams, e.Method == http.MethodHead, schema == nil:
		return violations
	default:
		return append(violations, prefix(where, check(e.Answer, schema))...)
	}
}

// Line says where a line of a stream is not as the document has it.
func (d *Document) Line(data []byte) []string {
	return prefix("GET /v1/watch, line", d.matches(data, "WatchBatch"))
}

func (d *Document) matches(data []byte, schema string) []string {
	ref := d.doc.Components.Schemas[schema]
	if ref == nil {
		return []string{fmt.Sprintf("the document has no schema %q of it", schema)}
	}
	return check(data, ref.Value)
}

// find returns the route of a path. That of a literal goes before one with a parameter.
func (d *Document) find(method, path string) (route string, operation *openapi3.Operation) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	item := d.doc.Paths.Value(path)
	for candidate, i := range d.doc.Paths.Map() {
		if item == nil && fits(candidate, path) {
			path, item = candidate, i
		}
	}
	if item == nil {
		return "", nil
	}
	return path, item.GetOperation(method)
}

// fits reports whether a path is one of a route, of which it may have to end in a parameter.
func fits(route, path string) bool {
	before, _, ok := strings.Cut(route, "{")
	rest, under := strings.CutPrefix(path, before)
	return ok && under && rest != "" && !strings.Contains(rest, "/")
}

// request says why a request is not one of an operation.
func request(operation *openapi3.Operation, e *Exchange) error {
	for name, values := range e.URL.Query() {
		parameter := operation.Parameters.GetByInAndName(openapi3.ParameterInQuery, name)
		if parameter == nil {
			return fmt.Errorf("there is no parameter %s", name)
		}
		for _, value := range values {
			if err := parameter.Schema.Value.VisitJSON(typed(parameter.Schema.Value, value)); err != nil {
				return fmt.Errorf("parameter %s: %s", name, describe(err))
			}
		}
	}
	for _, p := range operation.Parameters {
		if p.Value.Required && p.Value.In == openapi3.ParameterInQuery && !e.URL.Query().Has(p.Value.Name) {
			return fmt.Errorf("parameter %s is missing", p.Value.Name)
		}
	}
	if operation.RequestBody == nil {
		return nil
	}
	kind, _, err := mime.ParseMediaType(cmp.Or(e.Type, "application/json")) // as the document's introduction says
	if err != nil {
		return fmt.Errorf("Content-Type %q: %w", e.Type, err)
	}
	media := operation.RequestBody.Value.Content.Get(kind)
	if media == nil {
		return fmt.Errorf("Content-Type %s", kind)
	}
	var body any
	if err := json.Unmarshal(e.Asked, &body); err != nil {
		return err
	}
	spell(body, media.Schema.Value)
	if err := media.Schema.Value.VisitJSON(body, openapi3.VisitAsRequest()); err != nil {
		return errors.New(describe(err))
	}
	return nil
}

// spell gives the fields of a request the names that the document has: the case is up to who asks, as its introduction
// says.
func spell(value any, schema *openapi3.Schema) {
	switch value := value.(type) {
	case []any:
		for i := 0; schema.Items != nil && i < len(value); i++ {
			spell(value[i], schema.Items.Value)
		}
	case map[string]any:
		for name, ref := range schema.Properties {
			for asked, field := range value {
				if asked != name && strings.EqualFold(asked, name) {
					delete(value, asked)
					value[name] = field
				}
			}
			spell(value[name], ref.Value)
		}
	}
}

// typed is a parameter as JSON has it, as far as it is of its schema's type.
func typed(schema *openapi3.Schema, value string) any {
	switch {
	case schema.Type.Is(openapi3.TypeInteger):
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			return float64(n)
		}
	case schema.Type.Is(openapi3.TypeBoolean):
		if b, err := strconv.ParseBool(value); err == nil {
			return b
		}
	}
	return value
}

// answer returns the schema of an answer; nil where it is no JSON.
func answer(operation *openapi3.Operation, e *Exchange) (*openapi3.Schema, error) {
	response := operation.Responses.Status(e.Status)
	if response == nil {
		return nil, errors.New("the status is not in the document")
	}
	header := e.Header.Get("Content-Type")
	kind, _, err := mime.ParseMediaType(header)
	if err != nil {
		return nil, fmt.Errorf("Content-Type %q: %w", header, err)
	}
	media := response.Value.Content.Get(kind)
	switch {
	case media == nil:
		return nil, fmt.Errorf("Content-Type %s is not in the document", kind)
	case !strings.HasSuffix(kind, "json"):
		return nil, nil
	default:
		return media.Schema.Value, nil
	}
}

func prefix(where string, violations []string) []string {
	for i := range violations {
		violations[i] = where + ": " + violations[i]
	}
	return violations
}
