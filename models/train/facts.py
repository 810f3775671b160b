"""Tables of facts. Every row is common knowledge, put into words here."""


def rows(text):
    return [tuple(cell.strip() for cell in line.split("|")) for line in text.strip().splitlines()]


# country | capital | continent | people
COUNTRIES = rows("""
France | Paris | Europe | French
Germany | Berlin | Europe | German
Italy | Rome | Europe | Italian
Spain | Madrid | Europe | Spanish
Portugal | Lisbon | Europe | Portuguese
Austria | Vienna | Europe | Austrian
Poland | Warsaw | Europe | Polish
Greece | Athens | Europe | Greek
Norway | Oslo | Europe | Norwegian
Sweden | Stockholm | Europe | Swedish
Finland | Helsinki | Europe | Finnish
Denmark | Copenhagen | Europe | Danish
Ireland | Dublin | Europe | Irish
Iceland | Reykjavik | Europe | Icelandic
Hungary | Budapest | Europe | Hungarian
Romania | Bucharest | Europe | Romanian
Bulgaria | Sofia | Europe | Bulgarian
Croatia | Zagreb | Europe | Croatian
Ukraine | Kyiv | Europe | Ukrainian
Belgium | Brussels | Europe | Belgian
England | London | Europe | English
Scotland | Edinburgh | Europe | Scottish
Czechia | Prague | Europe | Czech
Estonia | Tallinn | Europe | Estonian
Latvia | Riga | Europe | Latvian
Lithuania | Vilnius | Europe | Lithuanian
Japan | Tokyo | Asia | Japanese
China | Beijing | Asia | Chinese
India | New Delhi | Asia | Indian
Thailand | Bangkok | Asia | Thai
Vietnam | Hanoi | Asia | Vietnamese
Nepal | Kathmandu | Asia | Nepalese
Mongolia | Ulaanbaatar | Asia | Mongolian
South Korea | Seoul | Asia | Korean
Iraq | Baghdad | Asia | Iraqi
Iran | Tehran | Asia | Iranian
Egypt | Cairo | Africa | Egyptian
Kenya | Nairobi | Africa | Kenyan
Ghana | Accra | Africa | Ghanaian
Nigeria | Abuja | Africa | Nigerian
Morocco | Rabat | Africa | Moroccan
Ethiopia | Addis Ababa | Africa | Ethiopian
Senegal | Dakar | Africa | Senegalese
Canada | Ottawa | North America | Canadian
Mexico | Mexico City | North America | Mexican
Cuba | Havana | North America | Cuban
Brazil | Brasilia | South America | Brazilian
Argentina | Buenos Aires | South America | Argentinian
Chile | Santiago | South America | Chilean
Peru | Lima | South America | Peruvian
Colombia | Bogota | South America | Colombian
Uruguay | Montevideo | South America | Uruguayan
Australia | Canberra | Australia | Australian
""")

# animal | sound | young | legs | home | class
ANIMALS = rows("""
dog | barks | puppy | 4 | a kennel | mammal
cat | meows | kitten | 4 | a house | mammal
cow | moos | calf | 4 | a barn | mammal
sheep | bleats | lamb | 4 | a meadow | mammal
pig | grunts | piglet | 4 | a sty | mammal
horse | neighs | foal | 4 | a stable | mammal
goat | bleats | kid | 4 | a farm | mammal
lion | roars | cub | 4 | the savanna | mammal
bear | growls | cub | 4 | a den | mammal
wolf | howls | pup | 4 | the forest | mammal
mouse | squeaks | pup | 4 | a hole | mammal
donkey | brays | foal | 4 | a stable | mammal
duck | quacks | duckling | 2 | a pond | bird
goose | honks | gosling | 2 | a farm | bird
hen | clucks | chick | 2 | a coop | bird
owl | hoots | owlet | 2 | a hollow tree | bird
frog | croaks | tadpole | 4 | a pond | amphibian
bee | buzzes | larva | 6 | a hive | insect
snake | hisses | snakelet | 0 | a hole | reptile
elephant | trumpets | calf | 4 | the savanna | mammal
""")

# more animals: animal | class | legs | what it is
MORE_ANIMALS = rows("""
ant | insect | 6 | a tiny insect that lives in a big group
spider | arachnid | 8 | a small animal with eight legs that spins a web
butterfly | insect | 6 | an insect with large, colourful wings
fly | insect | 6 | a small insect that can fly very well
eagle | bird | 2 | a large bird with very sharp eyes
penguin | bird | 2 | a bird that cannot fly but swims very well
parrot | bird | 2 | a colourful bird that can copy words
turtle | reptile | 4 | a slow animal that carries its shell on its back
crocodile | reptile | 4 | a large reptile with a strong jaw
whale | mammal | 0 | the largest animal in the sea
dolphin | mammal | 0 | a clever animal that lives in the sea and breathes air
shark | fish | 0 | a large fish with many sharp teeth
salmon | fish | 0 | a fish that swims up rivers
rabbit | mammal | 4 | a small animal with long ears
fox | mammal | 4 | a clever animal with a bushy tail
squirrel | mammal | 4 | a small animal that collects nuts
camel | mammal | 4 | an animal that can walk through the desert for days
giraffe | mammal | 4 | the tallest animal in the world
tiger | mammal | 4 | a big cat with black stripes
zebra | mammal | 4 | an animal that looks like a horse with stripes
kangaroo | mammal | - | an animal that jumps and carries its young in a pouch
hedgehog | mammal | 4 | a small animal that is covered with spines
bat | mammal | 2 | a mammal that can fly at night
beaver | mammal | 4 | an animal that builds dams in rivers
""")

OPPOSITES = rows("""
hot | cold
big | small
tall | short
fast | slow
happy | sad
light | dark
day | night
up | down
left | right
old | young
open | closed
hard | soft
wet | dry
loud | quiet
rich | poor
strong | weak
full | empty
early | late
near | far
high | low
first | last
good | bad
clean | dirty
thick | thin
deep | shallow
wide | narrow
sweet | sour
easy | difficult
true | false
inside | outside
above | below
begin | end
win | lose
buy | sell
love | hate
push | pull
north | south
east | west
summer | winter
friend | enemy
""")

COLOURS = rows("""
the sky on a clear day | blue
grass | green
a banana | yellow
snow | white
coal | black
a ripe tomato | red
an orange | orange
a lemon | yellow
milk | white
a strawberry | red
a frog | green
the night sky | black
a carrot | orange
a sunflower | yellow
a leaf in summer | green
chocolate | brown
a flamingo | pink
an elephant | grey
blood | red
an emerald | green
a ruby | red
a cucumber | green
the sea | blue
salt | white
""")

# thing | what it is
DEFINITIONS = rows("""
river | a stream of water that flows to the sea or to a lake
mountain | a very high piece of land
volcano | a mountain that can throw out hot rock
island | land with water all around it
desert | a dry place where very little rain falls
forest | a large area that is full of trees
lake | water with land all around it
ocean | a very large body of salt water
rainbow | an arc of colours that we see when the sun shines through rain
cloud | a mass of tiny drops of water in the sky
storm | bad weather with strong wind and rain
planet | a large round body that moves around a star
star | a huge ball of hot gas that gives light
moon | a body that moves around a planet
clock | a machine that shows the time
compass | a tool that points to the north
map | a drawing that shows where places are
bridge | something that carries a road over a river or a valley
library | a place where people can read and borrow books
school | a place where people learn
hospital | a place where sick people get help
bakery | a place where bread and cakes are made
market | a place where people buy and sell things
museum | a place where old or beautiful things are shown
dictionary | a book that explains words
poem | a short text that plays with sounds and pictures
novel | a long story in a book
teacher | a person who helps others to learn
doctor | a person who helps people who are ill
baker | a person who makes bread and cakes
farmer | a person who grows food and keeps animals
pilot | a person who flies a plane
carpenter | a person who makes things from wood
triangle | a shape with three sides
square | a shape with four equal sides
circle | a round shape without corners
hexagon | a shape with six sides
computer | a machine that follows instructions and works with data
program | a list of instructions for a computer
keyboard | the part of a computer that you type on
server | a computer or program that answers requests from others
token | a small piece of text that a language model reads or writes
telescope | a tool that makes far things look near
microscope | a tool that makes tiny things look big
umbrella | something that keeps you dry in the rain
bicycle | a vehicle with two wheels that you move with your feet
candle | a stick of wax that gives light when it burns
piano | a large instrument with black and white keys
violin | an instrument with four strings that is played with a bow
drum | an instrument that you hit to make a sound
seed | the small part of a plant from which a new plant grows
root | the part of a plant that takes up water from the ground
honey | a sweet food that bees make
cheese | a food that is made from milk
bread | a food that is made from flour and water
ice | water that is frozen
steam | water that has become a gas
winter | the coldest season of the year
autumn | the season when the leaves fall
""")

# question | answer | the words that must be in it; the first question is the plain one
SINGLE = [tuple(r) for r in rows("""
How many days are in a week? ; How many days does a week have? ; How long is a week in days? | A week has 7 days. | 7
How many months are in a year? ; How many months does a year have? | A year has 12 months. | 12
How many hours are in a day? ; How many hours does a day have? | A day has 24 hours. | 24
How many minutes are in an hour? ; How many minutes does an hour have? | An hour has 60 minutes. | 60
How many seconds are in a minute? ; How many seconds does a minute have? | A minute has 60 seconds. | 60
How many days are in a year? ; How many days does a year have? | A year has 365 days, and a leap year has 366. | 365
How many seasons are there? ; How many seasons does a year have? | There are 4 seasons: spring, summer, autumn and winter. | 4
Name the four seasons. ; What are the four seasons? ; Which seasons are there? | The four seasons are spring, summer, autumn and winter. | spring
How many letters are in the alphabet? ; How many letters does the English alphabet have? | The English alphabet has 26 letters. | 26
How many planets are in the solar system? ; How many planets go around the sun? | There are 8 planets in the solar system. | 8
What is the largest planet? ; Which planet is the biggest? | Jupiter is the largest planet. | Jupiter
What is the smallest planet? ; Which planet is the smallest? | Mercury is the smallest planet of the solar system. | Mercury
Which planet is closest to the sun? ; What planet is nearest to the sun? | Mercury is the planet closest to the sun. | Mercury
Which planet has rings? ; What planet is famous for its rings? | Saturn is famous for its rings. | Saturn
Which planet is called the red planet? ; What is the red planet? | Mars is called the red planet. | Mars
Which planet do we live on? ; On which planet do we live? ; What is the name of our planet? | We live on the planet Earth. | Earth
What is the largest ocean? ; Which ocean is the biggest? | The Pacific is the largest ocean. | Pacific
What is the highest mountain? ; Which mountain is the highest in the world? | Mount Everest is the highest mountain in the world. | Everest
What is the largest animal? ; Which animal is the biggest in the world? | The blue whale is the largest animal in the world. | whale
What is the tallest animal? ; Which animal is the tallest? | The giraffe is the tallest animal. | giraffe
What is the fastest land animal? ; Which animal runs fastest? | The cheetah is the fastest land animal. | cheetah
What do bees make? ; What do we get from bees? | Bees make honey. | honey
What do cows give us? ; What do we get from cows? | Cows give us milk. | milk
What do plants need to grow? ; What does a plant need? | Plants need light, water and air to grow. | water
At what temperature does water boil? ; When does water boil? | Water boils at 100 degrees Celsius. | 100
At what temperature does water freeze? ; When does water freeze? | Water freezes at 0 degrees Celsius. | 0
What is frozen water called? ; What do we call frozen water? | Frozen water is called ice. | ice
What is the chemical formula of water? ; What is water in chemistry? | The chemical formula of water is H2O. | H2O
What gas do we breathe in to live? ; Which gas do we need to breathe? | We need oxygen to breathe. | oxygen
Where does the sun rise? ; In which direction does the sun rise? | The sun rises in the east. | east
Where does the sun set? ; In which direction does the sun set? | The sun sets in the west. | west
What does the Earth go around? ; Around what does the Earth move? | The Earth goes around the sun. | sun
How long does the Earth take to go around the sun? ; How long does one trip of the Earth around the sun take? | The Earth takes about one year to go around the sun. | year
What colours make green? ; Which colours do I mix to get green? ; How do I make green? | Blue and yellow make green. | yellow
What colours make orange? ; Which colours do I mix to get orange? ; How do I make orange? | Red and yellow make orange. | yellow
What colours make purple? ; Which colours do I mix to get purple? ; How do I make purple? | Red and blue make purple. | blue
What are the primary colours? ; Name the primary colours. | The primary colours of paint are red, blue and yellow. | red
How many colours does a rainbow have? ; How many colours are in a rainbow? | A rainbow is usually said to have 7 colours. | 7
How many sides does a triangle have? ; How many sides has a triangle? | A triangle has 3 sides. | 3
How many sides does a square have? ; How many sides has a square? | A square has 4 sides. | 4
How many sides does a hexagon have? ; How many sides has a hexagon? | A hexagon has 6 sides. | 6
How many fingers are on one hand? ; How many fingers does a hand have? | A hand has 5 fingers, if you count the thumb. | 5
How many continents are there? ; How many continents does the Earth have? | Most people count 7 continents. | 7
How many legs does a spider have? ; How many legs has a spider? | A spider has 8 legs. | 8
How many legs does an insect have? ; How many legs do insects have? | An insect has 6 legs. | 6
Which season comes after winter? ; What comes after winter? | Spring comes after winter. | Spring
Which season comes after spring? ; What comes after spring? | Summer comes after spring. | Summer
Which season comes after summer? ; What comes after summer? | Autumn comes after summer. | Autumn
Which season comes after autumn? ; What comes after autumn? | Winter comes after autumn. | Winter
What do we use an umbrella for? ; What is an umbrella good for? | We use an umbrella to stay dry in the rain. | rain
Why is the sky blue? ; What makes the sky blue? | The air scatters blue light more than red light, so the sky looks blue. | light
Why do leaves fall in autumn? ; Why do trees lose their leaves? | Trees drop their leaves in autumn to save water in the cold season. | water
Why does it rain? ; Where does rain come from? | Tiny drops in the clouds join, become heavy and fall as rain. | drops
Why is there day and night? ; What makes day and night? | The Earth turns, so one side has light and the other is dark. | turns
What is the language of Quire? ; In what language is Quire written? ; Which language is Quire written in? | Quire is written in C. | C
""")]

LISTS = {
    "animals": "dog cat horse cow sheep fox bear rabbit lion owl frog duck".split(),
    "colours": "red blue green yellow orange purple white black brown pink".split(),
    "fruits": "apple banana orange pear plum cherry grape lemon peach".split(),
    "vegetables": "carrot potato onion cabbage pea bean cucumber leek".split(),
    "countries": "France Germany Italy Spain Japan Canada Brazil Egypt India Kenya".split(),
    "cities": "Paris Berlin Rome Madrid Tokyo Cairo Lima Oslo London Vienna".split(),
    "planets": "Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune".split(),
    "seasons": "spring summer autumn winter".split(),
    "shapes": "circle square triangle rectangle hexagon star".split(),
    "tools": "hammer saw drill spade rake axe".split(),
    "instruments": "piano violin drum flute guitar trumpet harp".split(),
    "birds": "owl eagle duck goose penguin parrot robin swan".split(),
    "flowers": "rose tulip daisy lily sunflower violet".split(),
    "drinks": "water milk tea coffee juice lemonade".split(),
    "insects": "ant bee fly butterfly beetle wasp".split(),
}

SPELL = """cat dog sun moon tree book house water apple bread river cloud green blue star light night story paper stone
horse mouse snow rain wind fire ball boat bird fish milk honey table chair door window garden forest friend happy music
school letter number summer winter spring autumn yellow orange purple flower island bridge castle kitchen teacher
page quire server token cache""".split()

JOKES = """
Why did the book go to the doctor? It had a bad spine.
Why did the clock go to school? It wanted to learn how to tell the time better.
What did the wall say to the other wall? Let us meet at the corner.
Why was the broom late? It swept in.
Why did the cloud stay at home? It felt a bit under the weather.
What do you call a bear in the rain? A wet bear.
Why did the page feel cold? Somebody had left the book open.
What did the zero say to the eight? Nice belt!
Why did the tree take a nap? It was tired of standing.
Why do fish live in salt water? Because pepper makes them sneeze.
Why did the server smile? It got so many nice requests.
What is a computer's favourite snack? A small byte.
""".strip().splitlines()

RIDDLES = rows("""
What has hands but cannot clap? | a clock
What has teeth but cannot bite? | a comb
What gets wetter the more it dries? | a towel
What has one eye but cannot see? | a needle
What has a neck but no head? | a bottle
What has keys but opens no door? | a piano
What goes up but never comes down? | your age
What has many pages but is not alive? | a book
What falls but never gets hurt? | the rain
What can you catch but not throw? | a cold
""")

# a model this small knows little; what these are about it does not know
UNKNOWN = """the world cup|the stock market|black holes|quantum physics|the Roman empire|the French revolution|DNA|
politics|the latest news|the weather in the next year|cars|chess openings|football|cooking a roast|taxes|medicine|law|
the history of Rome|famous actors|movies|the internet|bitcoin|the human brain|Latin grammar|opera|basketball|
the price of gold|airplanes|philosophy|Napoleon|Shakespeare|Einstein|the Olympic games|dinosaurs|rockets|robots|
electricity|magnets|vaccines|elections""".replace("\n", "").split("|")
