package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// restPage has the routes of the OpenAPI document, and the objects that they speak of.
func restPage() (string, error) {
	document, err := openapi3.NewLoader().LoadFromFile("pkg/http/rest/openapi.yaml")
	if err != nil {
		return "", err
	}
	var page strings.Builder
	fmt.Fprintf(&page,
		"# REST\n\nMade of `pkg/http/rest/openapi.yaml`, which the server has as `/openapi.yaml`. [How to "+
			"ask](../rest.md).\n\n%s", document.Info.Description)
	for _, tag := range document.Tags {
		fmt.Fprintf(&page, "\n## %s\n\n%s\n", tag.Name, tag.Description)
		for _, path := range document.Paths.Keys() {
			operations := document.Paths.Value(path).Operations()
			for _, method := range slices.Sorted(maps.Keys(operations)) {
				if operation := operations[method]; slices.Contains(operation.Tags, tag.Name) {
					writeOperation(&page, method+" "+path, operation)
				}
			}
		}
	}
	writeErrors(&page, document.Paths)
	page.WriteString("\n## Objects\n")
	for _, name := range slices.Sorted(maps.Keys(document.Components.Schemas)) {
		writeSchema(&page, name, document.Components.Schemas[name].Value)
	}
	return page.String(), nil
}

func writeOperation(page *strings.Builder, name string, operation *openapi3.Operation) {
	fmt.Fprintf(page, "\n### `%s`\n\n%s\n\n%s\n", name, strings.TrimSpace(operation.Summary),
		strings.TrimSpace(operation.Description))
	if body := operation.RequestBody; body != nil {
		fmt.Fprintf(page, "\nBody: %s\n", contents(body.Value.Content))
	}
	if len(operation.Parameters) > 0 {
		page.WriteString("\n" + table("parameter", "in", "type", "is"))
		for _, parameter := range operation.Parameters {
			p := parameter.Value
			page.WriteString(row("`"+p.Name+"`", p.In, kind(p.Schema), cell(p.Description)))
		}
	}
	page.WriteString("\n" + table("status", "is", "body"))
	responses, errors := operation.Responses.Map(), []string(nil)
	for _, status := range slices.Sorted(maps.Keys(responses)) {
		if responses[status].Ref != "" {
			errors = append(errors, status)
			continue
		}
		response := responses[status].Value
		page.WriteString(row(status, cell(*response.Description), contents(response.Content)))
	}
	if len(errors) > 0 {
		fmt.Fprintf(page, "\n[Errors](#errors): %s.\n", strings.Join(errors, ", "))
	}
}

// writeErrors has the answers that routes share, once. Where routes mean different things by a status, those of the
// rarer meaning are named.
func writeErrors(page *strings.Builder, paths *openapi3.Paths) {
	page.WriteString("\n## Errors\n\n" + table("status", "of", "is", "body"))
	routes, shared := map[string]map[string][]string{}, map[string]*openapi3.Response{}
	for _, path := range paths.Keys() {
		for _, operation := range paths.Value(path).Operations() {
			for status, response := range operation.Responses.Map() {
				if response.Ref == "" {
					continue
				}
				if routes[status] == nil {
					routes[status] = map[string][]string{}
				}
				routes[status][response.Ref] = append(routes[status][response.Ref], "`"+path+"`")
				shared[response.Ref] = response.Value
			}
		}
	}
	for _, status := range slices.Sorted(maps.Keys(routes)) {
		common := slices.MaxFunc(slices.Sorted(maps.Keys(routes[status])), func(a, b string) int {
			return len(routes[status][a]) - len(routes[status][b])
		})
		for _, ref := range slices.Sorted(maps.Keys(routes[status])) {
			of := strings.Join(routes[status][ref], ", ")
			switch {
			case len(routes[status]) == 1:
				of = ""
			case ref == common:
				of = "others"
			}
			page.WriteString(row(status, of, cell(*shared[ref].Description), contents(shared[ref].Content)))
		}
	}
}

// contents names the types of a body.
func contents(of openapi3.Content) string {
	var all []string
	for _, media := range slices.Sorted(maps.Keys(of)) {
		if of[media].Schema == nil {
			all = append(all, media)
		} else {
			all = append(all, media+", "+kind(of[media].Schema))
		}
	}
	return strings.Join(all, "; ")
}

func writeSchema(page *strings.Builder, name string, schema *openapi3.Schema) {
	fmt.Fprintf(page, "\n### %s\n\n", name)
	if schema.Description != "" {
		page.WriteString(strings.TrimSpace(schema.Description) + "\n\n")
	}
	if len(schema.Properties) == 0 {
		page.WriteString(kind(&openapi3.SchemaRef{Value: schema}) + "\n")
		return
	}
	page.WriteString(table("field", "type", "is"))
	for _, field := range slices.Sorted(maps.Keys(schema.Properties)) {
		property := schema.Properties[field]
		needed := ""
		if slices.Contains(schema.Required, field) {
			needed = "always there. "
		}
		page.WriteString(row("`"+field+"`", kind(property), needed+cell(description(property))))
	}
}

// description is that of a field, and not of the type that it is of, which has a place of its own.
func description(of *openapi3.SchemaRef) string {
	if of.Ref != "" {
		return ""
	}
	for _, part := range of.Value.AllOf {
		if part.Ref == "" {
			return part.Value.Description
		}
	}
	return of.Value.Description
}

// kind names a type, with a link where it has a place of its own.
func kind(of *openapi3.SchemaRef) string {
	if of.Ref != "" {
		name := of.Ref[strings.LastIndex(of.Ref, "/")+1:]
		return "[" + name + "](#" + strings.ToLower(name) + ")"
	}
	schema := of.Value
	switch {
	case len(schema.AllOf) > 0:
		var all []string
		for _, part := range schema.AllOf {
			if part.Ref != "" || len(part.Value.Properties) > 0 {
				all = append(all, kind(part))
			}
		}
		return strings.Join(all, " and ")
	case len(schema.Enum) > 0:
		var all []string
		for _, value := range schema.Enum {
			all = append(all, fmt.Sprintf("`%v`", value))
		}
		return "one of " + strings.Join(all, ", ")
	case schema.Items != nil:
		return "list of " + kind(schema.Items)
	case schema.AdditionalProperties.Schema != nil:
		return "map to " + kind(schema.AdditionalProperties.Schema)
	case len(schema.Properties) > 0:
		return "object with `" + strings.Join(slices.Sorted(maps.Keys(schema.Properties)), "`, `") + "`"
	case schema.Type != nil:
		return strings.Join(*schema.Type, " or ")
	}
	return "any"
}
