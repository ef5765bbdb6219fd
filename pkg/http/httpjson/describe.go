package httpjson

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// describe turns an error of the decoder into a sentence for the client: what is wrong, in which
// field, at which byte. What it repeats of the input is bounded by Clip.
func describe(err error) string {
	var syntactic *jsontext.SyntacticError
	var semantic *json.SemanticError
	switch {
	case errors.As(err, &semantic) && errors.Is(semantic.Err, json.ErrUnknownName):
		return "the field \"" + Clip(semantic.JSONPointer.LastToken()) +
			"\" is not known: check its spelling against /openapi.yaml, or leave it out"
	case errors.As(err, &semantic):
		return fmt.Sprintf("%s: %s, at byte %d", place(semantic.JSONPointer), mismatch(semantic), semantic.ByteOffset)
	case errors.As(err, &syntactic):
		what := "it is not valid JSON"
		if errors.Is(syntactic.Err, io.ErrUnexpectedEOF) {
			what = "it ends too early"
		}
		return fmt.Sprintf("the request body cannot be decoded: %s at byte %d (%s, %s): send one complete JSON object in "+
			"UTF-8",
			what, syntactic.ByteOffset, place(syntactic.JSONPointer), Clip(syntactic.Err.Error()))
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return "the request body cannot be decoded: it ends too early: send one complete JSON object"
	default:
		return "the request body cannot be decoded: " + Clip(err.Error())
	}
}

// place names a position in the body.
func place(pointer jsontext.Pointer) string {
	if pointer == "" {
		return "top level"
	}
	return "field " + Clip(string(pointer))
}

// mismatch says why a JSON value does not fit the Go type of its field.
func mismatch(err *json.SemanticError) string {
	switch {
	case errors.Is(err.Err, strconv.ErrRange):
		return "the number is out of range, want " + wanted(err.GoType)
	case err.Err != nil && !errors.Is(err.Err, strconv.ErrSyntax):
		return "the value is not usable: " + Clip(err.Err.Error())
	case err.JSONKind == 0:
		return "want " + wanted(err.GoType)
	}
	return fmt.Sprintf("got %s, want %s", kindName(err.JSONKind), wanted(err.GoType))
}

func kindName(kind jsontext.Kind) string {
	names := map[jsontext.Kind]string{
		'{': "an object", '}': "an object", '[': "an array", ']': "an array", '"': "a string", '0': "a number",
	}
	return cmp.Or(names[kind], kind.String())
}

// wantedNames are the JSON that fits a kind of Go type that needs no number of bits.
var wantedNames = map[reflect.Kind]string{
	reflect.String: "a string", reflect.Bool: "true or false", reflect.Float32: "a number", reflect.Float64: "a number",
	reflect.Slice: "an array", reflect.Array: "an array", reflect.Struct: "an object", reflect.Map: "an object",
}

// wanted names the JSON that fits a Go type. Types with their own decoding are named as they are.
func wanted(t reflect.Type) string {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == nil:
		return "another type"
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Int64:
		return fmt.Sprintf("a whole number of %d bits", t.Bits())
	case t.Kind() >= reflect.Uint && t.Kind() <= reflect.Uint64:
		return fmt.Sprintf("a whole number of %d bits, not negative", t.Bits())
	default:
		return cmp.Or(wantedNames[t.Kind()], t.String())
	}
}
