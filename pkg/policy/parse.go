package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubejson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// MaxFileSize bounds the policy file, in bytes. It is the size limit of a ConfigMap.
const MaxFileSize = 1 << 20

// Load reads and parses the file at path. Errors name the path.
func Load(path string) (*Policy, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	p, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("policy file %s: %w", path, err)
	}
	return p, nil
}

// readFile reads at most MaxFileSize bytes. Its errors name the path.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("policy file: %w", err)
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, MaxFileSize+1))
	if err != nil {
		return nil, fmt.Errorf("policy file: %w", err)
	}
	if len(data) > MaxFileSize {
		return nil, fmt.Errorf("policy file %s is larger than %d bytes", path, MaxFileSize)
	}
	return data, nil
}

// Parse reads a policy file in YAML or JSON, fills in the defaults and validates the result. The
// error is a k8s.io/apimachinery Aggregate with one entry per mistake.
func Parse(data []byte) (*Policy, error) {
	raw, err := toJSON(data)
	if err != nil {
		return nil, utilerrors.NewAggregate([]error{err})
	}
	// Of another version all fields may be different, so nothing more is said about them.
	if err := checkVersion(raw); err != nil {
		return nil, err
	}
	var f file
	strict, err := kubejson.UnmarshalStrict(raw, &f)
	if err != nil {
		return nil, utilerrors.NewAggregate([]error{typeError(err)})
	}
	var errs []error
	for _, e := range strict {
		errs = append(errs, fmt.Errorf("%w: correct its name or remove it", e))
	}
	p, formErrs := f.policy()
	if len(errs) == 0 && len(formErrs) == 0 {
		if err := p.Validate(); err != nil {
			return nil, err
		}
		return p, nil
	}
	for _, e := range formErrs {
		errs = append(errs, e)
	}
	var more utilerrors.Aggregate
	if errors.As(p.Validate(), &more) {
		errs = append(errs, more.Errors()...)
	}
	return nil, utilerrors.NewAggregate(errs)
}

// toJSON turns the one YAML document in data into JSON.
func toJSON(data []byte) ([]byte, error) {
	documents := yamlv3.NewDecoder(bytes.NewReader(data))
	for n := 0; ; n++ {
		var doc yamlv3.Node
		err := documents.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("the file is not valid YAML: %s", oneLine(err))
		}
		if n > 0 && !isNull(&doc) {
			return nil, errors.New("the file holds several YAML documents: keep one policy, without \"---\" after it")
		}
	}
	raw, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("the file is not valid YAML: %s", oneLine(err))
	}
	if string(raw) == "null" {
		return nil, fmt.Errorf("the file is empty: it must hold at least apiVersion: %s and kind: %s", APIVersion, Kind)
	}
	return raw, nil
}

func isNull(doc *yamlv3.Node) bool {
	return doc.IsZero() || len(doc.Content) == 1 && doc.Content[0].Tag == "!!null"
}

// checkVersion makes sure that the file is one this version of GlobalReserve can read.
func checkVersion(raw []byte) error {
	var head struct {
		APIVersion any `json:"apiVersion"`
		Kind       any `json:"kind"`
	}
	if err := kubejson.UnmarshalCaseSensitivePreserveInts(raw, &head); err != nil {
		return utilerrors.NewAggregate([]error{typeError(err)})
	}
	var errs field.ErrorList
	for _, f := range []struct {
		name, want string
		got        any
	}{{"apiVersion", APIVersion, head.APIVersion}, {"kind", Kind, head.Kind}} {
		switch f.got {
		case f.want:
		case nil, "":
			errs = append(errs, field.Required(field.NewPath(f.name), fmt.Sprintf("must be %q", f.want)))
		default:
			errs = append(errs, field.NotSupported(field.NewPath(f.name), f.got, []string{f.want}))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return errs.ToAggregate()
}

// typeError says in terms of the file that a value is of the wrong type.
func typeError(err error) error {
	var mismatch *json.UnmarshalTypeError
	if !errors.As(err, &mismatch) {
		return fmt.Errorf("the file cannot be decoded: %s", oneLine(err))
	}
	got, known := yamlNames[mismatch.Value]
	if !known {
		got = mismatch.Value
	}
	want := yamlNames[mismatch.Type.Kind().String()]
	if mismatch.Field == "" {
		return fmt.Errorf("the file holds a value of type %s where a %s is needed: begin it with apiVersion and kind", got, want)
	}
	return fmt.Errorf("%s: Invalid type: got a value of type %s, must be a %s", mismatch.Field, got, want)
}

// yamlNames gives the kinds of encoding/json and of Go the names a writer of YAML knows.
var yamlNames = map[string]string{
	"array": "list", "slice": "list",
	"object": "mapping", "struct": "mapping",
	"string": "string",
	"int64":  "whole number",
}

// oneLine makes the several lines of a YAML error one.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}
