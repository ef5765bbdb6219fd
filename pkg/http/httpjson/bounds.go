package httpjson

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Each reads the array ('[') or object ('{') that dec is at, and calls element before each of its
// elements or members. More than most are refused before they are read: a few bytes of JSON can
// stand for a large Go value. null has none, and is not present.
func Each(dec *jsontext.Decoder, kind jsontext.Kind, most int, element func() error) (present bool, err error) {
	token, err := dec.ReadToken()
	if err != nil || token.Kind() == 'n' {
		return false, err
	}
	if token.Kind() != kind {
		return false, fmt.Errorf("got %s, want %s", kindName(token.Kind()), kindName(kind))
	}
	for i := 0; dec.PeekKind() != kind+2; i++ { // both kinds of brackets are two apart
		if i == most {
			return true, fmt.Errorf("the %s has more than the limit of %d elements", strings.Fields(kindName(kind))[1], most)
		}
		if err := element(); err != nil {
			return true, err
		}
	}
	_, err = dec.ReadToken()
	return true, err
}

// Slice decodes an array of at most so many elements; null is nil.
func Slice[T any](dec *jsontext.Decoder, most int) ([]T, error) {
	list := []T{}
	present, err := Each(dec, '[', most, func() error {
		list = append(list, *new(T))
		return json.UnmarshalDecode(dec, &list[len(list)-1])
	})
	if !present {
		return nil, err
	}
	return list, err
}
