package rest

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// errWrongKind makes the decoder report the kind it found.
func errWrongKind(got jsontext.Kind, want string) error {
	return fmt.Errorf("got %s, want %s", got, want)
}

// decodeList calls element for each element of the JSON array that dec is at,
// and refuses more than most of them before it has read them: a few bytes of
// JSON can stand for a large Go value. null counts as an empty array.
func decodeList(dec *jsontext.Decoder, most int, element func(i int) error) error {
	token, err := dec.ReadToken()
	if err != nil {
		return err
	}
	switch token.Kind() {
	case 'n':
		return nil
	case '[':
	default:
		return errWrongKind(token.Kind(), "an array")
	}
	for i := 0; dec.PeekKind() != ']'; i++ {
		if i == most {
			return fmt.Errorf("the array has more than the limit of %d elements", most)
		}
		if err := element(i); err != nil {
			return err
		}
	}
	_, err = dec.ReadToken()
	return err
}

// decodeSlice is decodeList into a new slice.
func decodeSlice[T any](dec *jsontext.Decoder, most int) ([]T, error) {
	var list []T
	err := decodeList(dec, most, func(int) error {
		var value T
		if err := json.UnmarshalDecode(dec, &value); err != nil {
			return err
		}
		list = append(list, value)
		return nil
	})
	return list, err
}

// resourceList is a v1.ResourceList whose quantities are checked before they are
// parsed.
type resourceList v1.ResourceList

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (l *resourceList) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*l = nil
	token, err := dec.ReadToken()
	if err != nil {
		return err
	}
	switch token.Kind() {
	case 'n':
		return nil
	case '{':
	default:
		return errWrongKind(token.Kind(), "an object of resource names and quantities")
	}
	list := resourceList{}
	for dec.PeekKind() != '}' {
		if err := list.readEntry(dec); err != nil {
			return err
		}
	}
	*l = list
	_, err = dec.ReadToken()
	return err
}

func (l resourceList) readEntry(dec *jsontext.Decoder) error {
	token, err := dec.ReadToken()
	if err != nil {
		return err
	}
	name := token.String()
	if len(name) > maxResourceNameLength {
		return fmt.Errorf("a resource name is longer than %d bytes", maxResourceNameLength)
	}
	if len(l) == maxResourceNames {
		return fmt.Errorf("it names more than the limit of %d resources", maxResourceNames)
	}
	if token, err = dec.ReadToken(); err != nil {
		return err
	}
	switch token.Kind() {
	case '"', '0':
	case 'n':
		l[v1.ResourceName(name)] = resource.Quantity{}
		return nil
	default:
		return errWrongKind(token.Kind(), "a quantity such as \"500m\" or \"4Gi\"")
	}
	quantity, err := resources.ParseQuantity(token.String())
	if err != nil {
		return err
	}
	l[v1.ResourceName(name)] = quantity
	return nil
}
